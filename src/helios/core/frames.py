"""Executable resources: one zstd frame each, decoded as a stream from verified chunks.

The frame is walked block by block: a block decodes to at most 128 KiB, so what is in memory is one
chunk of stored bytes, the decoder's window and one block, whatever the resource's length, and a
frame that decodes to more than was signed is left at its first byte too many. Everything that
doesn't belong is refused by name. `opened_core` is the caller.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import Final, NoReturn

import zstandard

from helios.core.chunks import SignedContentError
from helios.core.format import WINDOW_LIMIT_NBYTES
from helios.core.resources import FrameResource

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_SKIPPABLE: Final = range(0x184D2A50, 0x184D2A60)
_LONGEST_HEADER_NBYTES: Final = 18
_BLOCK_HEADER_NBYTES: Final = 3
_CHECKSUM_NBYTES: Final = 4
_RLE_BLOCK: Final = 1
_RESERVED_BLOCK: Final = 3
_BLOCK_LIMIT_NBYTES: Final = 128 << 10
# A level-3 frame has a block for each few KiB of content at least. A frame of more blocks than
# these could hold a reader up for hours with a few bytes each.
_LEAST_BLOCK_NBYTES: Final = 512
_SPARE_BLOCKS: Final = 64


def decode_frame(resource: FrameResource, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The decoded content in pieces of at most 128 KiB. `chunks` are the stored bytes, each chunk
    checked before it is given here. Nothing is known to be right as a whole before the end is
    reached. Raises SignedContentError naming the resource and what is wrong with it."""
    stored = _Stored(resource, chunks)
    head = stored.peek(_LONGEST_HEADER_NBYTES)
    header_nbytes, has_checksum = _check_header(resource, head)
    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_LIMIT_NBYTES)
    decoder = decompressor.decompressobj()
    decoded_nbytes = 0
    try:
        decoder.decompress(stored.take(header_nbytes))
        for block in _blocks(resource, stored):
            piece = decoder.decompress(block)
            decoded_nbytes += len(piece)
            if decoded_nbytes > resource.decoded_nbytes:
                _refuse_length(resource, "more than")
            if piece:
                yield piece
        if has_checksum:
            decoder.decompress(stored.take(_CHECKSUM_NBYTES))
    except zstandard.ZstdError as error:
        _refuse(resource, f"the frame is broken ({error})")
    if not decoder.eof:
        _refuse(resource, "the frame is truncated")
    if decoded_nbytes != resource.decoded_nbytes:
        _refuse_length(resource, f"{decoded_nbytes} bytes, not")
    stored.check_end()


class _Stored:
    """The stored bytes of a resource, taken from the front, one chunk in memory at a time."""

    def __init__(self, resource: FrameResource, chunks: Iterable[bytes]) -> None:
        self._resource = resource
        self._chunks = iter(chunks)
        self._digest = hashlib.sha256()
        self._chunk = b""
        self._position = 0
        self._passed_nbytes = 0

    def peek(self, nbytes: int) -> bytes:
        """The next bytes, fewer if the current chunk has no more; only for the very first."""
        self._advance()
        return self._chunk[self._position : self._position + nbytes]

    def take(self, nbytes: int) -> bytes:
        """The next bytes. Refuses the frame if the stored bytes end before."""
        piece = self._chunk[self._position : self._position + nbytes]
        self._position += len(piece)
        while len(piece) < nbytes:
            if not self._advance():
                _refuse(self._resource, "the frame is truncated")
            more = self._chunk[: nbytes - len(piece)]
            self._position = len(more)
            piece += more
        return piece

    def check_end(self) -> None:
        """Refuses bytes that follow what was taken, and stored bytes that aren't the signed ones
        as a whole, which only a publisher who signed nonsense can bring about."""
        if self._position < len(self._chunk) or self._advance():
            end = self._passed_nbytes + self._position
            magic = self._chunk[self._position : self._position + 4]
            extra = len(magic) == 4 and (
                magic == _MAGIC or struct.unpack("<I", magic)[0] in _SKIPPABLE
            )
            if extra:
                _refuse(self._resource, f"an extra frame follows at byte {end}")
            rest = self._resource.stored_nbytes - end
            _refuse(self._resource, f"{rest} trailing bytes follow the frame")
        if self._digest.digest() != self._resource.stored_sha256:
            _refuse(self._resource, "the stored bytes are not what was signed as a whole")

    def _advance(self) -> bool:
        """Turns to the next chunk; False at the end."""
        self._passed_nbytes += len(self._chunk)
        self._chunk, self._position = b"", 0  # before the next one is read, not after
        self._chunk = next(self._chunks, b"")
        self._digest.update(self._chunk)
        return bool(self._chunk)


def _check_header(resource: FrameResource, head: bytes) -> tuple[int, bool]:
    """Length of the frame header, and whether a checksum ends the frame."""
    if head[: len(_MAGIC)] != _MAGIC:
        _refuse(resource, "is no zstd frame")
    try:
        parameters = zstandard.get_frame_parameters(head)
        header_nbytes = zstandard.frame_header_size(head)
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
        _refuse_length(resource, f"{declared} bytes, not")
    return header_nbytes, parameters.has_checksum


def _blocks(resource: FrameResource, stored: _Stored) -> Iterator[bytes]:
    """The frame's blocks with their headers, the last one included."""
    most = resource.decoded_nbytes // _LEAST_BLOCK_NBYTES + _SPARE_BLOCKS
    for _ in range(most):
        header = stored.take(_BLOCK_HEADER_NBYTES)
        bits = int.from_bytes(header, "little")
        last, kind, nbytes = bits & 1, bits >> 1 & 3, bits >> 3
        if kind == _RESERVED_BLOCK:
            _refuse(resource, "the frame has a block of the reserved type")
        if nbytes > _BLOCK_LIMIT_NBYTES:
            _refuse(resource, f"the frame has a block of {nbytes} bytes")
        yield header + stored.take(1 if kind == _RLE_BLOCK else nbytes)
        if last:
            return
    _refuse(resource, f"the frame has more than {most} blocks")


def _refuse_length(resource: FrameResource, length: str) -> NoReturn:
    _refuse(resource, f"decodes to {length} the signed {resource.decoded_nbytes}")


def _refuse(resource: FrameResource, what: str) -> NoReturn:
    raise SignedContentError(what, where=f"resource {resource.id!r}")
