"""What a second tier of the prefix cache must be able to do, and the tier that does nothing.

A tier keeps the content of pages and snapshots beyond the device's cache, in host memory or in
files. It hears from the cache what is published and evicted (`CacheListener`), and is asked for
content when a request is about to be admitted. Nobody waits for a tier while there is anything
else to do: what takes time happens on the tier's own threads, and a `Fetch` says when it is done.
All calls come from the thread that plans rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from helios.scheduler.cache import CacheListener
from helios.scheduler.cache.tree import PrefixNode, Snapshot


class Fetch(Protocol):
    """Content on its way into host memory."""

    @property
    def places(self) -> Sequence[int]:
        """The places of the page list that it has pages for: without windows all from the matched
        pages on, one after the other."""

    @property
    def has_snapshot(self) -> bool:
        """Whether it has a snapshot too, of the endpoint."""

    def wait(self, timeout_ms: int) -> bool:
        """Waits at most so long; whether it is done, for better or worse."""

    def install(self, pages: Sequence[int], row: int) -> int:
        """Once it is done: copies the content into free pages, one for each of `places`, and a free
        row, −1 where none could be had. Returns the endpoint that they serve now, 0 where the
        content turned out unusable."""

    def drop(self) -> None:
        """Nobody wants it any more."""


class SecondTier(CacheListener, Protocol):
    """A tier behind the prefix cache."""

    def find(self, tokens: Sequence[int], matched: int, limit: int) -> Fetch | None:
        """Begins to fetch what serves more than `matched`, at most `limit` of the tokens; None
        where there is nothing."""

    def reset(self) -> None:
        """Forgets everything."""


class NoSecondTier:
    """Keeps nothing."""

    def page_published(self, node: PrefixNode) -> None:
        """Nothing."""

    def page_evicted(self, node: PrefixNode) -> None:
        """Nothing."""

    def snapshot_published(self, snapshot: Snapshot) -> None:
        """Nothing."""

    def snapshot_evicted(self, snapshot: Snapshot) -> None:
        """Nothing."""

    def find(self, tokens: Sequence[int], matched: int, limit: int) -> Fetch | None:
        """Nothing."""
        return None

    def reset(self) -> None:
        """Nothing."""
