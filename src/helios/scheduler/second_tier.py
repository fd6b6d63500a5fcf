"""What a second tier of the prefix cache must be able to do, and the tier that does nothing.

A tier keeps the content of pages and snapshots beyond the device's cache, in host memory or in
files. It hears from the cache what is published and evicted (`CacheListener`), and is asked for
content when a request is about to be admitted. Nobody waits for a tier while there is anything
else to do: what takes time happens on the tier's own threads, and a `Fetch` says what has arrived.
All calls come from the thread that plans rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from helios.dataclass import dataclass
from helios.scheduler.cache import CacheListener
from helios.scheduler.cache.tree import PrefixNode, Snapshot
from helios.scheduler.tier_counts import TierCounts


@dataclass(frozen=True, slots=True)
class Arrival:
    """A page's or a snapshot's content that has arrived. It covers tokens up to `endpoint`, which
    for a page is its end; the content is the tier's own kind."""

    endpoint: int
    is_snapshot: bool
    content: Any


class Fetch(Protocol):
    """Content on its way: pages in order, without windows the one after the matched ones first,
    then perhaps a snapshot."""

    @property
    def finished(self) -> bool:
        """Whether nothing more will arrive."""

    def poll(self) -> Arrival | None:
        """What comes next, if it has arrived; each is handed out once."""

    def wait(self, timeout_ms: int) -> None:
        """Waits at most so long for something to arrive, or for the end."""

    def cancel(self) -> None:
        """Nobody wants the rest."""


class SecondTier(CacheListener, Protocol):
    """A tier behind the prefix cache."""

    def find(self, tokens: Sequence[int], matched: int, limit: int) -> Fetch | None:
        """Begins to fetch what serves more than `matched`, at most `limit` of the tokens; None
        where there is nothing."""

    def write_page(self, page: int, content: Any) -> None:
        """Copies arrived content into a free page."""

    def write_snapshot(self, row: int, content: Any) -> None:
        """Copies arrived content into a free snapshot row."""

    def reset(self) -> None:
        """Forgets everything."""

    def counts(self) -> dict[str, TierCounts]:
        """What each of its parts did and holds, by name."""


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

    def write_page(self, page: int, content: Any) -> None:
        """Nothing."""

    def write_snapshot(self, row: int, content: Any) -> None:
        """Nothing."""

    def reset(self) -> None:
        """Nothing."""

    def counts(self) -> dict[str, TierCounts]:
        """None."""
        return {}
