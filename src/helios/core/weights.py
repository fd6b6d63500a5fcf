"""Weight resources: read-only mappings of raw files, verified chunk by chunk on all cores.

The runtime computes on the mapping itself, so a core costs no copy and its pages are shared
between processes. Weights that are stored sealed get memory of their own instead. `opened_core`
is the caller.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from helios.core.files import open_regular
from helios.core.format import CHUNK_NBYTES
from helios.core.resources import WeightResource
from helios.errors import CoreError


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
    with open_regular(path) as file:
        nbytes = file.seek(0, 2)
        if nbytes != resource.nbytes:
            raise CoreError(
                f"has {nbytes} bytes, not the signed {resource.nbytes}", where=str(path)
            )
        # The descriptor is duplicated by the mapping. Populating reads ahead in large steps.
        mapping = mmap.mmap(
            file.fileno(), nbytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, prot=mmap.PROT_READ
        )
    mapped = WeightMap(mapping)
    if verify:
        damaged = damaged_chunk(mapped.content, resource.chunk_sha256)
        if damaged is not None:
            mapped.close()
            raise CoreError(f"chunk {damaged} is not what was signed", where=str(path))
    return mapped


def map_memory(nbytes: int, fill: Callable[[memoryview], None]) -> WeightMap:
    """Page-aligned memory that `fill` writes once. Raises what `fill` raises."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    mapping = mmap.mmap(-1, nbytes, flags=flags)
    try:
        with memoryview(mapping) as output:
            fill(output)
    except BaseException:
        mapping.close()
        raise
    return WeightMap(mapping)


def damaged_chunk(content: memoryview, digests: tuple[bytes, ...]) -> int | None:
    """The first chunk whose SHA-256 differs, or None. Hashing releases the GIL."""

    def intact(number: int) -> bool:
        chunk = content[number * CHUNK_NBYTES : (number + 1) * CHUNK_NBYTES]
        return hashlib.sha256(chunk).digest() == digests[number]

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = list(pool.map(intact, range(len(digests))))
    return None if all(results) else results.index(False)
