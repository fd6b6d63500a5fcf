"""Bringing a waiting request's history in from the second tier, before it is admitted.

The fetch begins when the request is the first that waits, and goes on beside the rounds; the
request waits for it. What has arrived is published like a resident's pages, so that admission
finds it by matching again; nobody holds it meanwhile, and if it is evicted for somebody else the
request gets less. `Waiting` is the caller.
"""

from __future__ import annotations

from collections.abc import Sequence

from helios.scheduler.cache import NO_PAGE, NO_ROW, Hold, PrefixCache
from helios.scheduler.requests import Progress
from helios.scheduler.second_tier import Arrival, Fetch, SecondTier


class Fetching:
    """At most one fetch, for the first request that waits."""

    def __init__(self, cache: PrefixCache, tier: SecondTier) -> None:
        self._cache = cache
        self._tier = tier
        self._asked_for: Progress | None = None
        self._fetch: Fetch | None = None

    def knows(self, progress: Progress) -> bool:
        """Whether the tier has been asked for this request's content."""
        return self._asked_for is progress

    def begin(self, progress: Progress, matched: int, limit: int) -> None:
        """Asks the tier for more than what was matched, at most `limit` tokens."""
        self.drop()
        self._asked_for = progress
        if limit > matched:
            self._fetch = self._tier.find(progress.tokens, matched, limit)

    def go_on(self) -> bool:
        """Publishes what has arrived; whether more is to come."""
        fetch, progress = self._fetch, self._asked_for
        if fetch is None or progress is None:
            return False
        arrival = fetch.poll()
        if arrival is not None:
            hold = self._cache.hold(self._cache.match(progress.tokens, 0), counted=False)
            while arrival is not None:
                if not self._publish(hold, progress.tokens, arrival):
                    fetch.cancel()
                    self._fetch = None
                    break
                arrival = fetch.poll()
            self._cache.release(hold)
        if fetch.finished:
            self._fetch = None
        return self._fetch is not None

    def wait(self, timeout_ms: int) -> None:
        """Waits at most so long for what is on its way."""
        if self._fetch is not None:
            self._fetch.wait(timeout_ms)

    def drop(self) -> None:
        """Forgets the request and what is fetched for it."""
        fetch, self._fetch, self._asked_for = self._fetch, None, None
        if fetch is not None:
            fetch.cancel()

    def _publish(self, hold: Hold, tokens: Sequence[int], arrival: Arrival) -> bool:
        """Whether there was room for it, and what leads to it is there."""
        cache, windows = self._cache, self._cache.rules.window_tokens
        whole, length = divmod(arrival.endpoint, cache.page_tokens)
        before = whole if arrival.is_snapshot else whole - 1
        cache.follow(hold, tokens, before * cache.page_tokens)
        if hold.depth < before and not windows:
            return False
        listed = [NO_PAGE] * whole
        if arrival.is_snapshot:
            row = cache.take_row()
            if row == NO_ROW:
                return False
            self._tier.write_snapshot(row, arrival.content)
            if not cache.publish(hold, tokens, arrival.endpoint, listed, row).row_taken:
                cache.give_back_row(row)
            return True
        assert not length, "a page ends at a page's end"
        if not cache.can_take(1):
            return False
        taken: list[int] = []
        cache.take(1, taken)
        listed[-1] = taken[0]
        self._tier.write_page(taken[0], arrival.content)
        if not cache.publish(hold, tokens, arrival.endpoint, listed).moved:
            cache.give_back(taken)
        return True
