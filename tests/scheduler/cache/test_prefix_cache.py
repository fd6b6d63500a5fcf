"""The prefix cache's door, case by case: what a prompt finds, who keeps which page, what is evicted
first. The whole of it against a naive model is in test_model.py."""

from __future__ import annotations

from collections.abc import Sequence

from helios.runtime.geometry import HistoryRules
from helios.scheduler.cache import Hold, PrefixCache, Published

PAGES_ALONE = HistoryRules(starts_at_pages=True)
PAGED = HistoryRules(starts_at_pages=True, restores=True, names_endpoint=True)
EXACT = HistoryRules(restores=True)
SIZE = 4


class Resident:
    """What the scheduler keeps for a request: tokens, page list, private pages, hold."""

    def __init__(self, cache: PrefixCache, tokens: Sequence[int], identity: bytes = b"") -> None:
        self.cache = cache
        self.tokens = list(tokens)
        self.match = cache.match(self.tokens, len(tokens) - 1, identity)
        self.hold: Hold = cache.hold(self.match)
        self.pages = list(self.match.pages)
        self.private: list[int] = []
        missing = cache.pages.needed_for(len(tokens)) - len(self.pages)
        assert cache.can_take(missing)
        cache.take(missing, self.private)
        self.pages += self.private

    def publish(self, endpoint: int, row: int = -1) -> Published:
        published = self.cache.publish(self.hold, self.tokens, endpoint, self.pages, row)
        for page in published.moved:
            self.private.remove(page)
        assert set(published.kept) <= set(self.private)
        if row >= 0 and not published.row_taken:
            self.cache.give_back_row(row)
        return published

    def leave(self) -> None:
        self.cache.give_back(self.private)
        self.cache.release(self.hold)


def served(
    cache: PrefixCache,
    tokens: Sequence[int],
    endpoint: int | None = None,
    *,
    snapshot: bool = False,
) -> list[int]:
    """Prefills, publishes and leaves; the page list."""
    one = Resident(cache, tokens)
    end = len(tokens) if endpoint is None else endpoint
    one.publish(end, cache.take_row() if snapshot else -1)
    one.leave()
    cache.check_books([])
    return one.pages


def test_whole_pages_are_found_again() -> None:
    cache = PrefixCache(8, SIZE, rules=PAGES_ALONE)
    prompt = list(range(11))
    pages = served(cache, prompt)
    assert cache.match(prompt, 10).endpoint == 8
    assert cache.match(prompt, 10).pages == tuple(pages[:2])
    assert cache.match(prompt, 7).endpoint == 4
    assert cache.match([*prompt[:6], 99, 99, 99], 8).endpoint == 4
    assert cache.match(prompt, 10, b"another adapter").endpoint == 0
    assert cache.pages.free == 6
    assert cache.counters.published_pages == 2
