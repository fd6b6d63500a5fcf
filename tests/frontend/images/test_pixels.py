"""Images as clients send them, hostile ones too."""

from __future__ import annotations

import base64
import io
import random
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from helios.errors import RequestError
from helios.frontend.images import pixels
from helios.frontend.images.pixels import decode, from_data_url


def _encoded(form: str, mode: str = "RGB", size: tuple[int, int] = (5, 3)) -> bytes:
    out = io.BytesIO()
    colour = (10, 20, 30, 0)[: len(mode)]
    Image.new(mode, size, colour).save(out, form)
    return out.getvalue()


def _refused_at(data: bytes) -> str | None:
    """What the refusal names; None for an image."""
    try:
        decode(data, "image")
    except RequestError as error:
        return error.where
    return None


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "BMP", "GIF"])
def test_formats(form: str) -> None:
    picture = decode(_encoded(form), "image")
    assert picture.shape == (3, 5, 3)
    assert picture.dtype == np.uint8


def test_transparent_parts_are_over_white() -> None:
    assert decode(_encoded("PNG", "RGBA"), "image").min() == 255


def test_other_formats_and_garbage_are_refused() -> None:
    choose = random.Random(1)
    whole = _encoded("PNG", size=(40, 40))
    broken = [b"", b"GIF89a", whole[:60], choose.randbytes(200), _encoded("TIFF")]
    for index in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[index] ^= 0xFF
        broken.append(bytes(damaged))
    refusals = [_refused_at(data) for data in broken]
    assert refusals[:5] == ["image"] * 5
    assert set(refusals) <= {None, "image"}


def test_a_bomb_is_refused_before_it_is_decoded() -> None:
    head = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + head
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk
    bomb += struct.pack(">I", zlib.crc32(chunk)) + b"\0\0\0\0IDAT"
    with pytest.raises(RequestError, match="image"):
        decode(bomb, "image")


def test_data_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    data = _encoded("PNG")
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    assert from_data_url(url, "image") == data
    for wrong in (
        "https://example.com/a.png",
        "data:image/png,abc",
        url + "!",
        "data:text/x;base64,",
    ):
        with pytest.raises(RequestError):
            from_data_url(wrong, "image")
    monkeypatch.setattr(pixels, "SIZE_LIMIT", 10)
    with pytest.raises(RequestError, match="too large"):
        from_data_url(url, "image")
    with pytest.raises(RequestError, match="too large"):
        decode(data, "image")
