"""Weight resources: read-only mappings of raw files, verified chunk by chunk on all cores.

The runtime computes on the mapping itself, so a core costs no copy and its pages are shared
between processes. Weights that are stored sealed get memory of their own instead. `opened_core`
is the caller.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from helios.core.chunks import SignedContentError, damaged, first_damaged, open_content
from helios.core.resources import WeightResource
from helios.wording import show_size


class WeightMap:
    """A mapped weight resource. `content` is valid until `close`, which is idempotent and leaves
    the memory mapped for as long as other views of it live."""

    def __init__(self, mapping: mmap.mmap) -> None:
        self._mapping = mapping
        self.content = memoryview(mapping).toreadonly()

    def close(self) -> None:
        """Gives up this view."""
        with suppress(BufferError):  # arrays still look at it; the last of them unmaps
            self.content.release()
            self._mapping.close()


def map_file(path: Path, resource: WeightResource, *, verify: bool) -> WeightMap:
    """Maps a file as a resource. With `verify` every chunk is hashed first. Raises CoreError
    naming the file if its length or a chunk is not what was signed."""
    with open_content(path, resource) as file:
        if verify:
            number = first_damaged(file, resource)
            if number is not None:
                raise damaged(number, str(path))
        # The descriptor is duplicated by the mapping. Populating reads ahead in large steps.
        return WeightMap(
            mmap.mmap(
                file.fileno(),
                resource.nbytes,
                flags=mmap.MAP_SHARED | mmap.MAP_POPULATE,
                prot=mmap.PROT_READ,
            )
        )


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
