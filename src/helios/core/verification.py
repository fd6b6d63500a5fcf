"""Checks every byte of a core's resources, and says how fast: beside what reading alone gives.

Contents are dropped from the system's memory first where nobody else uses them, so that what is
checked and measured is what the disk holds. `helios verify` is the caller.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from helios.core.chunks import (
    damaged,
    first_damaged,
    open_content,
    read_on_all_cores,
    verified_chunks,
)
from helios.core.format import CHUNK_NBYTES
from helios.core.resources import FrameResource, SealedResource, WeightResource
from helios.dataclass import dataclass

if TYPE_CHECKING:
    from helios.core.opened_core import OpenedCore

Resource = FrameResource | WeightResource | SealedResource

# Reading alone is measured on so much at most: enough for a steady figure.
_SAMPLE_NBYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Pace:
    """Bytes that went by, and the seconds that they took."""

    nbytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Verified:
    """`checked`: everything, with all checks. `read`: the first of it once more, without any."""

    checked: Pace
    read: Pace


def verify_content(core: OpenedCore, advance: Callable[[int], None]) -> Verified:
    """Checks all resources on all cores; `advance` is told stored bytes that are done, from any
    thread. Raises CoreError naming the first resource that isn't what was signed."""
    resources: list[Resource] = [*core.decoded.executables.values(), *core.decoded.weights.values()]
    for resource in resources:
        core.find_resource(resource.id)  # what has to be fetched is fetched off the clock
    began = time.monotonic()
    paths = [core.check_resource(resource.id, advance) for resource in resources]
    checked = Pace(sum(r.stored_nbytes for r in resources), time.monotonic() - began)
    return Verified(checked, _read_alone(zip(resources, paths, strict=True)))


def check_file(
    path: Path, resource: Resource, core_key: bytes | None, advance: Callable[[int], None]
) -> None:
    """Checks a file as a resource, on all cores where its chunks are independent. Raises CoreError
    naming the file, or SignedContentError naming the resource."""
    _forget(path)
    if isinstance(resource, SealedResource):
        from helios.core.sealed import check_sealed

        assert core_key is not None
        check_sealed(path, resource, core_key, advance)
        return
    with open_content(path, resource) as file:
        if isinstance(resource, FrameResource):
            from helios.core.frames import decode_frame

            for _ in decode_frame(resource, _counted(file, resource, advance)):
                pass
            return
        number = first_damaged(file, resource, advance)
        if number is not None:
            raise damaged(number, str(path))


def _counted(
    file: BinaryIO, resource: FrameResource, advance: Callable[[int], None]
) -> Iterator[bytes]:
    for chunk in verified_chunks(file, resource):
        yield chunk
        advance(len(chunk))


def _read_alone(contents: Iterable[tuple[Resource, Path]]) -> Pace:
    """Reads contents as they are checked, without looking at them."""
    left_nbytes = _SAMPLE_NBYTES
    read_nbytes = 0
    seconds = 0.0
    for resource, path in contents:
        numbers = range(len(resource.chunk_sha256))[: -(-left_nbytes // CHUNK_NBYTES)]
        nbytes = min(resource.stored_nbytes, len(numbers) * CHUNK_NBYTES)
        _forget(path)
        with open_content(path, resource) as file:
            began = time.monotonic()
            read_on_all_cores(file, resource, numbers, _pass_over)
            seconds += time.monotonic() - began
        read_nbytes += nbytes
        left_nbytes = max(left_nbytes - nbytes, 0)
    return Pace(read_nbytes, seconds)


def _pass_over(number: int, pieces: Iterator[memoryview]) -> bool:
    for _ in pieces:
        pass
    return True


def _forget(path: Path) -> None:
    """Drops a file's pages from memory, those excepted that some process has mapped. Not every
    file system can; then what is measured is memory."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
