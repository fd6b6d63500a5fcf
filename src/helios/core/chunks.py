"""Committed content: bytes of a file that are signed chunk by chunk, checked before they are used.

Two ways to read it: one verified chunk after the other, for decoders that keep no more than that,
and all chunks at once on all cores of the machine, for content that is used in place. What the
bytes mean, and which file to try, is the callers' business: `frames`, `weights`, `cache` and
`verification`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from helios.core.files import open_regular
from helios.core.format import CHUNK_NBYTES
from helios.errors import CoreError

# What a thread reads before it hashes: small enough to be still in its cache.
PIECE_NBYTES: Final = 256 << 10

# Chunks that the system is asked for before they are read, a thread and in all: the disk works
# while the cores hash, however little the system itself would read ahead.
_AHEAD_CHUNKS: Final = 4
_MOST_AHEAD_CHUNKS: Final = 32


class SignedContentError(CoreError):
    """What was signed can't be used as it is, so no other location of it helps."""


class Committed(Protocol):
    """A resource's stored bytes: how many, the SHA-256 of each 4 MiB, and the name of the file."""

    @property
    def id(self) -> str:
        """The resource's signed name."""

    @property
    def stored_nbytes(self) -> int:
        """Bytes of the file."""

    @property
    def chunk_sha256(self) -> tuple[bytes, ...]:
        """One digest a started chunk."""

    @property
    def content_name(self) -> str:
        """The name that follows from the content."""


def worker_count() -> int:
    """Threads that check content: one for each core that this process may use."""
    return len(os.sched_getaffinity(0))


def chunk_nbytes(content: Committed, number: int) -> int:
    """Length of a chunk; only the last one is shorter than `CHUNK_NBYTES`."""
    return min(CHUNK_NBYTES, content.stored_nbytes - number * CHUNK_NBYTES)


def check_chunk(content: Committed, number: int, chunk: bytes | memoryview, where: str) -> None:
    """Raises CoreError naming `where` and the chunk unless it is what was signed."""
    if hashlib.sha256(chunk).digest() != content.chunk_sha256[number]:
        raise damaged(number, where)


def damaged(number: int, where: str) -> CoreError:
    """The error for a chunk whose digest differs."""
    return CoreError(f"chunk {number} is not what was signed", where=where)


def open_content(path: Path, content: Committed) -> BinaryIO:
    """Opens a file of the signed length. Raises CoreError naming it."""
    file = open_regular(path)
    nbytes = file.seek(0, os.SEEK_END)
    if nbytes != content.stored_nbytes:
        file.close()
        raise CoreError(
            f"has {nbytes} bytes, not the signed {content.stored_nbytes}", where=str(path)
        )
    return file


def verified_chunks(file: BinaryIO, content: Committed) -> Iterator[bytes]:
    """The chunks of a file in order, each read once and checked before it is given out. Raises
    CoreError naming the file."""
    for number in range(len(content.chunk_sha256)):
        yield verified_chunk(file, content, number)


def verified_chunk(file: BinaryIO, content: Committed, number: int) -> bytes:
    """One chunk of a file, checked. Raises CoreError naming the file."""
    nbytes = chunk_nbytes(content, number)
    try:
        chunk = os.pread(file.fileno(), nbytes, number * CHUNK_NBYTES)
    except OSError as error:
        raise CoreError(f"can't be read ({error.strerror})", where=file.name) from error
    if len(chunk) != nbytes:
        raise CoreError(f"is truncated within chunk {number}", where=file.name)
    check_chunk(content, number, chunk, file.name)
    return chunk


def first_damaged(
    file: BinaryIO,
    content: Committed,
    advance: Callable[[int], None] | None = None,
    into: memoryview | None = None,
) -> int | None:
    """The number of the first chunk that isn't what was signed, or None, found on all cores.
    `advance` is told the bytes of each chunk that is done, from any thread. Where `into` is given
    what is read stays there. Raises CoreError naming the file where it can't be read."""
    found: list[int] = []

    def check(number: int, pieces: Iterator[memoryview]) -> bool:
        if not _intact(content, number, pieces):
            found.append(number)
        return not found

    # Chunks are handed out in order, so every chunk before a damaged one is looked at too.
    read_on_all_cores(file, content, range(len(content.chunk_sha256)), check, advance, into)
    return min(found, default=None)


def read_unverified(file: BinaryIO, content: Committed, into: memoryview) -> None:
    """Reads all of a file on all cores. Raises CoreError naming it where it can't be read."""

    def take(_: int, pieces: Iterator[memoryview]) -> bool:
        for _piece in pieces:
            pass
        return True

    read_on_all_cores(file, content, range(len(content.chunk_sha256)), take, into=into)


def damaged_chunks(file: BinaryIO, content: Committed, numbers: Sequence[int]) -> list[int]:
    """Those of some chunks that aren't what was signed. Raises CoreError as `first_damaged`."""
    found: list[int] = []

    def check(number: int, pieces: Iterator[memoryview]) -> bool:
        if not _intact(content, number, pieces):
            found.append(number)
        return True

    read_on_all_cores(file, content, numbers, check)
    return sorted(found)


def _intact(content: Committed, number: int, pieces: Iterator[memoryview]) -> bool:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.digest() == content.chunk_sha256[number]


def read_on_all_cores(
    file: BinaryIO,
    content: Committed,
    numbers: Sequence[int],
    take: Callable[[int, Iterator[memoryview]], bool],
    advance: Callable[[int], None] | None = None,
    into: memoryview | None = None,
) -> None:
    """Reads chunks on all cores, in the order of `numbers`: `take` gets a chunk's number and its
    bytes in pieces that are valid until the next one, and says whether to go on. With `into`, as
    long as the file, they are read to their places there. Raises CoreError naming the file."""
    threads = min(worker_count(), len(numbers))
    ahead = min(threads * _AHEAD_CHUNKS, _MOST_AHEAD_CHUNKS)
    left = enumerate(numbers)  # `next` on it is atomic: the threads share it

    def work(_: None) -> None:
        buffer = memoryview(bytearray(PIECE_NBYTES)) if into is None else None
        for index, number in left:
            # The first to come asks for what lies before its own share of asking.
            for wanted in numbers[1 if index == 0 else index + ahead : index + ahead + 1]:
                _read_ahead(file, content, wanted)
            going_on = take(number, _pieces(file, content, number, buffer, into))
            if advance is not None:
                advance(chunk_nbytes(content, number))
            if not going_on:
                return

    with ThreadPoolExecutor(max(threads, 1), "helios check") as pool:
        try:
            for _ in pool.map(work, repeat(None, threads)):
                pass
        finally:
            for _ in left:  # an error or an interrupt leaves nothing to do for the others
                pass


def _read_ahead(file: BinaryIO, content: Committed, number: int) -> None:
    """Asks the system to fetch a chunk into its own memory. Only ever a hint."""
    with suppress(OSError):
        os.posix_fadvise(
            file.fileno(),
            number * CHUNK_NBYTES,
            chunk_nbytes(content, number),
            os.POSIX_FADV_WILLNEED,
        )


def _pieces(
    file: BinaryIO,
    content: Committed,
    number: int,
    buffer: memoryview | None,
    into: memoryview | None,
) -> Iterator[memoryview]:
    """Reads a chunk piece by piece, to the beginning of `buffer` or to its place in `into`."""
    position = number * CHUNK_NBYTES
    end = position + chunk_nbytes(content, number)
    while position < end:
        nbytes = min(PIECE_NBYTES, end - position)
        if into is not None:
            piece = into[position : position + nbytes]
        else:
            assert buffer is not None
            piece = buffer[:nbytes]
        try:
            count = os.preadv(file.fileno(), [piece], position)
        except OSError as error:
            raise CoreError(f"can't be read ({error.strerror})", where=file.name) from error
        if not count:
            raise CoreError(f"is truncated within chunk {number}", where=file.name)
        yield piece[:count]
        position += count
