"""Executable resources: one zstd frame each, checked against its commitments, then decoded.

The frame's end is found from its block headers before anything is decompressed, so that the
output is bounded by the signed length and everything that doesn't belong is refused by name.
`opened_core` is the caller.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final, NoReturn

import zstandard

from helios.core.body import FrameResource
from helios.core.format import CHUNK_NBYTES, WINDOW_LIMIT_NBYTES
from helios.errors import CoreError

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_SKIPPABLE: Final = range(0x184D2A50, 0x184D2A60)
_BLOCK_HEADER_NBYTES: Final = 3
_CHECKSUM_NBYTES: Final = 4
_RLE_BLOCK: Final = 1
_RESERVED_BLOCK: Final = 3


def check_stored(resource: FrameResource, stored: bytes, where: str) -> None:
    """Holds compressed bytes against length, chunk commitments and digest. Raises CoreError
    naming `where` and the first chunk that differs."""
    if len(stored) != resource.stored_nbytes:
        raise CoreError(
            f"has {len(stored)} bytes, not the signed {resource.stored_nbytes}", where=where
        )
    view = memoryview(stored)
    for number, digest in enumerate(resource.chunk_sha256):
        chunk = view[number * CHUNK_NBYTES : (number + 1) * CHUNK_NBYTES]
        if hashlib.sha256(chunk).digest() != digest:
            raise CoreError(f"chunk {number} is not what was signed", where=where)
    if hashlib.sha256(stored).digest() != resource.stored_sha256:
        raise CoreError("the whole is not what was signed", where=where)


def decode_frame(resource: FrameResource, stored: bytes) -> bytes:
    """Decodes checked bytes. Raises CoreError naming the resource and what is wrong with it."""
    if stored[: len(_MAGIC)] != _MAGIC:
        _refuse(resource, "is no zstd frame")
    try:
        parameters = zstandard.get_frame_parameters(stored)
        header = zstandard.frame_header_size(stored)
    except zstandard.ZstdError as error:
        _refuse(resource, f"the frame header is broken ({error})")
    if parameters.window_size > WINDOW_LIMIT_NBYTES:
        _refuse(
            resource,
            f"the window of {parameters.window_size} bytes is over {WINDOW_LIMIT_NBYTES}",
        )
    if parameters.dict_id:
        _refuse(resource, "the frame needs a dictionary")
    declared = parameters.content_size
    if declared not in (resource.decoded_nbytes, zstandard.CONTENTSIZE_UNKNOWN):
        _refuse_length(resource, str(declared))
    end = _frame_end(resource, stored, header)
    if parameters.has_checksum:
        end += _CHECKSUM_NBYTES
    _check_end(resource, stored, end)
    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_LIMIT_NBYTES)
    try:
        # An empty result has no room to overrun; for it the library wants a size above zero.
        decoded = decompressor.decompress(stored, max_output_size=max(resource.decoded_nbytes, 1))
    except zstandard.ZstdError as error:
        _refuse(resource, f"the frame doesn't decode to its signed length ({error})")
    if len(decoded) != resource.decoded_nbytes:
        _refuse_length(resource, str(len(decoded)))
    return bytes(decoded)


def _frame_end(resource: FrameResource, stored: bytes, position: int) -> int:
    """Offset after the last block, from the block headers alone."""
    last = False
    while not last:
        if position + _BLOCK_HEADER_NBYTES > len(stored):
            _refuse(resource, "the frame is truncated")
        header = int.from_bytes(stored[position : position + _BLOCK_HEADER_NBYTES], "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if kind == _RESERVED_BLOCK:
            _refuse(resource, "the frame has a block of the reserved type")
        position += _BLOCK_HEADER_NBYTES + (1 if kind == _RLE_BLOCK else size)
    return position


def _check_end(resource: FrameResource, stored: bytes, end: int) -> None:
    if end > len(stored):
        _refuse(resource, "the frame is truncated")
    rest = stored[end:]
    if not rest:
        return
    if rest[:4] == _MAGIC or (len(rest) >= 4 and struct.unpack_from("<I", rest)[0] in _SKIPPABLE):
        _refuse(resource, f"an extra frame follows at byte {end}")
    _refuse(resource, f"{len(rest)} trailing bytes follow the frame")


def _refuse_length(resource: FrameResource, length: str) -> NoReturn:
    _refuse(resource, f"decodes to {length} bytes, not the signed {resource.decoded_nbytes}")


def _refuse(resource: FrameResource, what: str) -> NoReturn:
    raise CoreError(what, where=f"resource {resource.id!r}")
