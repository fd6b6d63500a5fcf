"""A second tier over the fake model's memory: keeps what was published, by the tokens that lead to
it, and brings it back a few polls later."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from helios.runtime.geometry import Geometry
from helios.scheduler.cache.tree import PrefixNode, Snapshot
from helios.scheduler.second_tier import Arrival
from helios.scheduler.tier_counts import TierCounts
from tests.scheduler.fake_memory import FakeMemory, Saved

Tokens = tuple[int, ...]


def tokens_of(node: PrefixNode) -> Tokens:
    """All tokens up to the node's end."""
    tokens: Tokens = ()
    while node.parent is not None:
        tokens, node = (*node.tokens, *tokens), node.parent
    return tokens


@dataclass
class FakeFetch:
    """Arrivals, each after `delay` polls in vain; waiting makes up for them."""

    arrivals: deque[Arrival]
    delay: int
    waited: int = 0
    cancelled: bool = False

    @property
    def finished(self) -> bool:
        return not self.arrivals

    def poll(self) -> Arrival | None:
        if not self.arrivals:
            return None
        if self.waited < self.delay:
            self.waited += 1
            return None
        self.waited = 0
        return self.arrivals.popleft()

    def wait(self, timeout_ms: int) -> None:
        self.waited = self.delay

    def cancel(self) -> None:
        self.cancelled = True
        self.arrivals.clear()


class FakeTier:
    """Keeps everything for ever. `written` counts what it brought back."""

    def __init__(self, geometry: Geometry, memory: FakeMemory, delay: int = 0) -> None:
        self._page_tokens = geometry.page_tokens
        self._rules = geometry.history
        self._memory = memory
        self._delay = delay
        self.pages: dict[Tokens, tuple[int | None, ...]] = {}
        self.snapshots: dict[Tokens, Saved] = {}
        self.fetches: list[FakeFetch] = []
        self.written = 0

    def page_published(self, node: PrefixNode) -> None:
        self.pages[tokens_of(node)] = self._memory.read_page(node.page)

    def page_evicted(self, node: PrefixNode) -> None:
        kept = self.pages[tokens_of(node)]
        assert kept == self._memory.read_page(node.page), "a published page has changed"

    def snapshot_published(self, snapshot: Snapshot) -> None:
        tokens = (*tokens_of(snapshot.node), *snapshot.partial)
        self.snapshots[tokens] = self._memory.read_snapshot(snapshot.row)

    def snapshot_evicted(self, snapshot: Snapshot) -> None:
        tokens = (*tokens_of(snapshot.node), *snapshot.partial)
        assert self.snapshots[tokens] == self._memory.read_snapshot(snapshot.row)

    def find(self, tokens: Sequence[int], matched: int, limit: int) -> FakeFetch | None:
        """All whole pages that are here, up to the longest snapshot's if rows are needed."""
        size = self._page_tokens
        asked = tuple(tokens[:limit])
        best = max((end for end in range(1, limit + 1) if asked[:end] in self.snapshots), default=0)
        whole = best // size
        if self._rules.starts_at_pages:
            while asked[: (whole + 1) * size] in self.pages and (whole + 1) * size <= limit:
                whole += 1
        first = 0
        if self._rules.window_tokens:
            first = max(0, max(best, whole * size) - self._rules.window_tokens) // size
        places = [p for p in range(first, whole) if asked[: (p + 1) * size] in self.pages]
        arrivals = [
            Arrival((p + 1) * size, False, self.pages[asked[: (p + 1) * size]]) for p in places
        ]
        if best:
            arrivals.append(Arrival(best, True, self.snapshots[asked[:best]]))
        if not arrivals or max(best, whole * size) <= matched:
            return None
        fetch = FakeFetch(deque(arrivals), self._delay)
        self.fetches.append(fetch)
        return fetch

    def write_page(self, page: int, content: tuple[int | None, ...]) -> None:
        self.written += 1
        self._memory.write_page(page, content)

    def write_snapshot(self, row: int, content: Saved) -> None:
        self.written += 1
        self._memory.write_snapshot(row, content)

    def reset(self) -> None:
        self.pages.clear()
        self.snapshots.clear()

    def counts(self) -> dict[str, TierCounts]:
        kept = len(self.pages) + len(self.snapshots)
        return {"fake": TierCounts(stored=kept, restored=self.written, entries=kept)}
