"""What a signed frame may look like: each way of being no single exact frame is refused by name."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.core import ResourceKind, open_core
from helios.core.chunks import first_damaged, open_content, verified_chunks
from helios.core.format import CHUNK_NBYTES, chunk_digests
from helios.core.frames import decode_frame
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


def _with_dictionary(content: bytes) -> bytes:
    """A frame whose header asks for dictionary 7; its content is as ever."""
    frame = compress(content)
    return frame[:4] + bytes([frame[4] | 1]) + b"\x07" + frame[5:]


def _many_blocks(content: bytes) -> bytes:
    """A frame whose blocks hold one byte each."""
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    flush = zstandard.COMPRESSOBJ_FLUSH_BLOCK
    blocks = [compressor.compress(bytes([b])) + compressor.flush(flush) for b in content[:100]]
    return b"".join(blocks) + compressor.compress(content[100:]) + compressor.flush()


def _long_block() -> bytes:
    """A streamed frame's header, then a raw block that is one byte too long."""
    header = _streamed(CONTENT_BYTES)[: zstandard.frame_header_size(_streamed(CONTENT_BYTES))]
    size = (128 << 10) + 1
    return header + (1 | size << 3).to_bytes(3, "little") + bytes(size)


def _broken_checksum(content: bytes) -> bytes:
    frame = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(content)
    return frame[:-1] + bytes([frame[-1] ^ 1])


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
    ("decodes to more than the signed 2048", _streamed(CONTENT_BYTES + b"\0")),
    ("decodes to more than the signed 2048", _streamed(bytes(64 << 20))),
    ("truncated", _streamed(CONTENT_BYTES)[:-3]),
    ("needs a dictionary", _with_dictionary(CONTENT_BYTES)),
    ("more than 68 blocks", _many_blocks(CONTENT_BYTES)),
    ("a block of 131073 bytes", _long_block()),
    ("the frame is broken", _broken_checksum(CONTENT_BYTES)),
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
    return FrameResource(
        "r",
        ResourceKind.MODULE,
        len(stored),
        hashlib.sha256(stored).digest(),
        len(content),
        tuple(chunk_digests(stored)),
    )


def _decode(content: bytes, stored: bytes, *, step: int = CHUNK_NBYTES) -> bytes:
    """Decodes stored bytes that arrive in chunks of `step` bytes."""
    chunks = (stored[i : i + step] for i in range(0, len(stored), step))
    return b"".join(decode_frame(_resource(content, stored), chunks))


@settings(max_examples=60, deadline=None)
@given(
    content=st.one_of(
        st.binary(max_size=4000),
        st.builds(lambda b, n: b * n, st.binary(min_size=1, max_size=4), st.integers(0, 100_000)),
    ),
    step=st.integers(18, 300),
)
def test_every_content_comes_back_however_its_chunks_fall(content: bytes, step: int) -> None:
    assert _decode(content, compress(content), step=step) == content


@pytest.mark.clause("CORE-6")
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_arbitrary_signed_bytes_decode_exactly_or_are_refused(data: st.DataObject) -> None:
    stored = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = _decode(CONTENT_BYTES, bytes(stored), step=data.draw(st.integers(18, 99)))
    except CoreError:
        return
    assert len(decoded) == len(CONTENT_BYTES)


@pytest.mark.clause("CORE-4")
def test_a_digest_of_the_whole_that_is_not_of_the_chunks_is_refused() -> None:
    resource = replace(_resource(CONTENT_BYTES, GOOD), stored_sha256=bytes(32))
    with pytest.raises(CoreError, match="not what was signed as a whole"):
        list(decode_frame(resource, [GOOD]))


@pytest.mark.clause("CORE-4")
@pytest.mark.parametrize("chunk", [0, 1, 2])
def test_no_byte_of_a_chunk_is_given_out_before_its_commitment_holds(
    tmp_path: Path, chunk: int
) -> None:
    stored = bytearray(os.urandom(2 * CHUNK_NBYTES + 5))
    resource = _resource(b"", bytes(stored))
    assert len(resource.chunk_sha256) == 3
    path = tmp_path / "stored"
    path.write_bytes(stored)
    with open_content(path, resource) as file:
        assert b"".join(verified_chunks(file, resource)) == stored
        assert first_damaged(file, resource) is None
    stored[chunk * CHUNK_NBYTES + 1] ^= 1
    path.write_bytes(stored)
    given_out: list[bytes] = []
    with open_content(path, resource) as file:
        with pytest.raises(CoreError, match=rf"stored: chunk {chunk} is not what was signed"):
            given_out.extend(verified_chunks(file, resource))
        assert first_damaged(file, resource) == chunk
    assert b"".join(given_out) == stored[: chunk * CHUNK_NBYTES]


def test_the_first_of_several_damaged_chunks_is_named(tmp_path: Path) -> None:
    stored = bytearray(9 * CHUNK_NBYTES)
    resource = _resource(b"", bytes(stored))
    for number in (3, 4, 8):
        stored[number * CHUNK_NBYTES] = 1
    path = tmp_path / "stored"
    path.write_bytes(stored)
    with open_content(path, resource) as file:
        assert first_damaged(file, resource) == 3
