"""A client's image as pixels. Everything about it is hostile until it is decoded."""

from __future__ import annotations

import base64
import binascii
import io
import warnings
from typing import Final

import numpy as np
from numpy.typing import NDArray

from helios.errors import RequestError

SIZE_LIMIT: Final = 20 << 20  # bytes of an encoded image
PIXELS_LIMIT: Final = 64 << 20
_FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
_HEAD: Final = "data:image/"

Pixels = NDArray[np.uint8]


def from_data_url(url: str, where: str) -> bytes:
    """The bytes of a `data:` URL with base64. Raises RequestError naming `where`."""
    head, comma, encoded = url.partition(",")
    if not comma or not head.startswith(_HEAD) or not head.endswith(";base64"):
        raise RequestError(
            "is no image in a data URL",
            where=where,
            remedy="Send data:image/png;base64,…: this server fetches nothing",
        )
    if len(encoded) > SIZE_LIMIT * 4 // 3 + 4:
        raise _too_large(where)
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(f"is no base64: {error}", where=where) from None


def decode(data: bytes, where: str) -> Pixels:
    """The first picture of an image, [height, width, 3], transparent parts over white. Raises
    RequestError naming `where` for what can't be decoded or is too large."""
    from PIL import Image, UnidentifiedImageError

    if len(data) > SIZE_LIMIT:
        raise _too_large(where)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
                width, height = image.size
                if width * height > PIXELS_LIMIT:
                    raise RequestError(
                        f"has {width} x {height} pixels",
                        where=where,
                        remedy=f"Send {PIXELS_LIMIT} pixels at most",
                    )
                image.load()
                if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
                    layer = image.convert("RGBA")
                    below = Image.new("RGBA", layer.size, "white")
                    shown = Image.alpha_composite(below, layer).convert("RGB")
                else:
                    shown = image.convert("RGB")
                return np.asarray(shown, np.uint8)
    except RequestError:
        raise
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError) as error:
        raise RequestError(
            f"can't be decoded as an image ({error})"[:300],
            where=where,
            remedy=f"Send one of {', '.join(_FORMATS)}",
        ) from None
    except Exception as error:  # decoders raise what they like: SyntaxError, struct.error, …
        raise RequestError(
            f"can't be decoded as an image ({type(error).__name__})", where=where
        ) from None


def _too_large(where: str) -> RequestError:
    return RequestError(
        "is too large", where=where, remedy=f"Send {SIZE_LIMIT >> 20} MiB at most, as encoded"
    )
