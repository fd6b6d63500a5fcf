"""What a signed frame may look like: each way of being no single exact frame is refused by name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.core import ResourceKind, open_core
from helios.core.format import CHUNK_NBYTES, chunk_digests
from helios.core.frames import check_stored, decode_frame
from helios.core.resources import FrameResource
from helios.errors import CoreError
from tests.core.sample_core import CONTENT, NAMESPACE, compress, write_core

CONTENT_BYTES = CONTENT["tokenizer"][1]
GOOD = compress(CONTENT_BYTES)


def _window(log: int, content: bytes) -> bytes:
    parameters = zstandard.ZstdCompressionParameters.from_level(
        3, window_log=log, write_content_size=False
    )
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return compressor.compress(content) + compressor.flush()


def _streamed(content: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    return compressor.compress(content) + compressor.flush()


def _reserved_block(frame: bytes) -> bytes:
    at = zstandard.frame_header_size(frame)
    return frame[:at] + bytes([frame[at] | 6]) + frame[at + 1 :]


FRAMES = [
    ("truncated", GOOD[:-1]),
    ("truncated", GOOD[: len(GOOD) // 2]),
    ("truncated", GOOD[: zstandard.frame_header_size(GOOD)]),
    ("extra frame", GOOD + GOOD),
    ("extra frame", GOOD + compress(b"")),
    ("extra frame", GOOD + b"\x50\x2a\x4d\x18\x00\x00\x00\x00"),
    ("1 trailing bytes", GOOD + b"\0"),
    ("9 trailing bytes", GOOD + b"trailing!"),
    ("no zstd frame", b"\x50\x2a\x4d\x18\x00\x00\x00\x00" + GOOD),
    ("no zstd frame", CONTENT_BYTES),
    ("frame header is broken", GOOD[:4]),
    ("reserved type", _reserved_block(GOOD)),
    ("decodes to 2049 bytes, not the signed 2048", compress(CONTENT_BYTES + b"\0")),
    ("decodes to 2047 bytes, not the signed 2048", compress(CONTENT_BYTES[:-1])),
    ("decodes to 2047 bytes, not the signed 2048", _streamed(CONTENT_BYTES[:-1])),
    ("signed length", _streamed(CONTENT_BYTES + b"\0")),
    ("signed length", _streamed(bytes(64 << 20))),
    ("window of 16777216 bytes", _window(24, CONTENT_BYTES)),
]


@pytest.mark.clause("CORE-6")
@pytest.mark.parametrize(("match", "stored"), FRAMES, ids=[m for m, _ in FRAMES])
def test_a_signed_frame_that_is_not_exact_is_refused_by_name(
    tmp_path: Path, match: str, stored: bytes
) -> None:
    core = open_core(write_core(tmp_path / "core", stored={"tokenizer": stored}), accept=NAMESPACE)
    with pytest.raises(CoreError, match=rf"resource 'tokenizer': .*{match}"):
        core.read_resource("tokenizer", ResourceKind.TOKENIZER)


@pytest.mark.clause("CORE-4", "CORE-6")
@pytest.mark.parametrize(
    "stored",
    [
        GOOD,
        _streamed(CONTENT_BYTES),
        _window(23, CONTENT_BYTES),
        zstandard.ZstdCompressor(level=3, write_checksum=True).compress(CONTENT_BYTES),
    ],
    ids=["one-shot", "streamed", "widest window", "with checksum"],
)
def test_exact_frames_decode(tmp_path: Path, stored: bytes) -> None:
    core = open_core(write_core(tmp_path / "core", stored={"tokenizer": stored}), accept=NAMESPACE)
    assert core.read_resource("tokenizer", ResourceKind.TOKENIZER) == CONTENT_BYTES


def _resource(content: bytes, stored: bytes) -> FrameResource:
    import hashlib

    return FrameResource(
        "r",
        ResourceKind.MODULE,
        len(stored),
        hashlib.sha256(stored).digest(),
        len(content),
        tuple(chunk_digests(stored)),
    )


@settings(max_examples=60, deadline=None)
@given(
    content=st.one_of(
        st.binary(max_size=4000),
        st.builds(lambda b, n: b * n, st.binary(min_size=1, max_size=4), st.integers(0, 100_000)),
    )
)
def test_every_content_comes_back(content: bytes) -> None:
    assert decode_frame(_resource(content, compress(content)), compress(content)) == content


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_arbitrary_signed_bytes_decode_exactly_or_are_refused(data: st.DataObject) -> None:
    stored = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    resource = _resource(CONTENT_BYTES, bytes(stored))
    try:
        decoded = decode_frame(resource, bytes(stored))
    except CoreError:
        return
    assert len(decoded) == len(CONTENT_BYTES)


@pytest.mark.clause("CORE-4")
@pytest.mark.parametrize("chunk", [0, 1, 2])
def test_commitments_cover_each_chunk_of_the_compressed_bytes(chunk: int) -> None:
    stored = bytearray(os.urandom(2 * CHUNK_NBYTES + 5))
    resource = _resource(b"", bytes(stored))
    assert len(resource.chunk_sha256) == 3
    check_stored(resource, bytes(stored), "file")
    stored[chunk * CHUNK_NBYTES + 1] ^= 1
    with pytest.raises(CoreError, match=rf"file: chunk {chunk} is not what was signed"):
        check_stored(resource, bytes(stored), "file")
