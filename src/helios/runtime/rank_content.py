"""The bytes of pages and snapshots of several ranks: each rank's, one after the other.

What is read is whole or not at all, so a page that comes back from a second tier comes back on
every rank. `RankGroup` has one; else as `cache_content`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from helios.errors import ExecutionError
from helios.runtime.cache_content import CacheContent, Content
from helios.runtime.rank_errors import naming_rank


class RankContents:
    """Reads and writes a page or a snapshot on every rank."""

    def __init__(self, contents: Sequence[CacheContent]) -> None:
        self._contents = tuple(contents)
        self.page_nbytes = sum(own.page_nbytes for own in contents)
        self.snapshot_nbytes = sum(own.snapshot_nbytes for own in contents)
        layouts = b"".join(own.layout_digest for own in contents)
        self.layout_digest = hashlib.sha256(b"ranks" + layouts).digest()

    def read_page(self, page: int) -> bytes:
        """A copy of a page's content."""
        parts = []
        for rank, own in enumerate(self._contents):
            with naming_rank(rank):
                parts.append(own.read_page(page))
        return b"".join(parts)

    def write_page(self, page: int, content: Content) -> None:
        """Replaces a page's content. Raises ExecutionError for content of another size."""
        flat = _whole(content, self.page_nbytes, f"page {page}")
        for rank, own in enumerate(self._contents):
            part, flat = flat[: own.page_nbytes], flat[own.page_nbytes :]
            with naming_rank(rank):
                own.write_page(page, part)

    def read_snapshot(self, index: int) -> bytes:
        """A copy of a snapshot's content."""
        parts = []
        for rank, own in enumerate(self._contents):
            with naming_rank(rank):
                parts.append(own.read_snapshot(index))
        return b"".join(parts)

    def write_snapshot(self, index: int, content: Content) -> None:
        """Replaces a snapshot's content. Raises ExecutionError for content of another size."""
        flat = _whole(content, self.snapshot_nbytes, f"snapshot {index}")
        for rank, own in enumerate(self._contents):
            part, flat = flat[: own.snapshot_nbytes], flat[own.snapshot_nbytes :]
            with naming_rank(rank):
                own.write_snapshot(index, part)


def _whole(content: Content, nbytes: int, where: str) -> memoryview:
    """The content, of all ranks; checked before any rank's is written."""
    flat = memoryview(content).cast("B")
    if flat.nbytes != nbytes:
        raise ExecutionError(f"{flat.nbytes} bytes of content for {nbytes}", where=where)
    return flat
