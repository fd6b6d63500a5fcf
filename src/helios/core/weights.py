"""Weight resources: raw files, verified chunk by chunk on all cores.

Files that aren't large are read into memory of their own, in huge pages: every step reads all of
it, which takes up to a tenth longer from pages of 4 KiB, and verification reads the file anyway.
Larger ones are mapped, read-only: they cost no copy, and processes share their pages. So are those
of whatever size that a device takes a copy of. Weights that
are stored sealed always get memory of their own. `opened_core` is the caller.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from helios.core.chunks import (
    SignedContentError,
    damaged,
    first_damaged,
    open_content,
    read_unverified,
)
from helios.core.resources import WeightResource
from helios.wording import show_size

HUGE_PAGE_NBYTES: Final = 2 << 20
# The largest file that is read into memory of its own.
OWN_MEMORY_NBYTES: Final = 1 << 30
_HUGE_PAGES: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")


class WeightMap:
    """A weight resource in memory. `content` is valid until `close`, which is idempotent and leaves
    the memory mapped for as long as other views of it live."""

    def __init__(self, mapping: mmap.mmap) -> None:
        self._mapping = mapping
        self.content = memoryview(mapping).toreadonly()

    def close(self) -> None:
        """Gives up this view."""
        with suppress(BufferError):  # arrays still look at it; the last of them unmaps
            self.content.release()
            self._mapping.close()


def map_file(
    path: Path, resource: WeightResource, *, verify: bool, copied: bool = False
) -> WeightMap:
    """Maps a file as a resource, or reads it. With `verify` every chunk is hashed; what is only
    `copied` from here is mapped, page by page as threads come to it. Raises CoreError naming the
    file if its length or a chunk is not what was signed."""
    with open_content(path, resource) as file:
        memory = None if copied else _huge_pages(resource.nbytes)
        into = None if memory is None else memoryview(memory)
        if verify:
            number = first_damaged(file, resource, into=into)
            if number is not None:
                raise damaged(number, str(path))
        elif into is not None:
            read_unverified(file, resource, into)
        if memory is not None:
            return WeightMap(memory)
        # The descriptor is duplicated by the mapping. Populating reads ahead in large steps, in one
        # thread: what has just been verified is there already.
        populating = 0 if copied and verify else mmap.MAP_POPULATE
        flags = mmap.MAP_SHARED | populating
        return WeightMap(
            mmap.mmap(file.fileno(), resource.nbytes, flags=flags, prot=mmap.PROT_READ)
        )


def _huge_pages(nbytes: int) -> mmap.mmap | None:
    """Memory in huge pages; None where a mapping of the file serves better: it is large or tiny, or
    there are no huge pages to be had."""
    if not HUGE_PAGE_NBYTES <= nbytes <= OWN_MEMORY_NBYTES:
        return None
    try:
        if "[never]" in _HUGE_PAGES.read_text(encoding="ascii"):
            return None
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
    except OSError:
        return None
    return memory


def map_memory(resource: str, nbytes: int, fill: Callable[[memoryview], None]) -> WeightMap:
    """Page-aligned memory for a resource, which `fill` writes once. Raises SignedContentError
    naming the resource where there isn't so much, and what `fill` raises."""
    try:
        mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise SignedContentError(
            f"takes {show_size(nbytes)} of memory, which can't be had ({error})",
            where=f"resource {resource!r}",
            remedy="Sealed weights need memory of their own: free some",
        ) from error
    try:
        with memoryview(mapping) as output:
            fill(output)
    except BaseException:
        with suppress(BufferError):  # the error's traceback may still look at it
            mapping.close()
        raise
    return WeightMap(mapping)
