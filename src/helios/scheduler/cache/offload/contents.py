"""What the second tier asks of a device: the bytes of pages and snapshots, out and in.

`helios.runtime.cache_content` has the implementation. Published pages and snapshots may be read at
any time, from any thread; free ones written at any time: no round in flight touches either.
"""

from __future__ import annotations

from typing import Protocol

Content = bytes | bytearray | memoryview


class PageContents(Protocol):
    """Flat bytes, `page_nbytes` of a page and `snapshot_nbytes` of a snapshot."""

    page_nbytes: int
    snapshot_nbytes: int

    def read_page(self, page: int) -> Content:
        """A copy of a page's content."""

    def write_page(self, page: int, content: Content) -> None:
        """Replaces a page's content."""

    def read_snapshot(self, index: int) -> Content:
        """A copy of a snapshot's content."""

    def write_snapshot(self, index: int, content: Content) -> None:
        """Replaces a snapshot's content."""


class LaidOutContents(PageContents, Protocol):
    """Contents that say how they are laid out: equal digests, equal meaning of bytes."""

    layout_digest: bytes
