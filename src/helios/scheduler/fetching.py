"""Bringing a waiting request's history in from the second tier, before it is admitted.

The fetch begins when the request is the first that waits, and goes on beside the rounds; the
request waits for it. What arrived is published like a resident's pages, so that admission finds
it by matching again. `Waiting` is the caller.
"""

from __future__ import annotations

from helios.scheduler.cache import NO_PAGE, NO_ROW, Match, PrefixCache
from helios.scheduler.requests import Progress
from helios.scheduler.second_tier import Fetch, SecondTier


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

    def wait(self, timeout_ms: int) -> bool:
        """Waits at most so long; whether nothing is on its way any more."""
        return self._fetch is None or self._fetch.wait(timeout_ms)

    def drop(self) -> None:
        """Forgets the request and what is fetched for it."""
        fetch, self._fetch, self._asked_for = self._fetch, None, None
        if fetch is not None:
            fetch.drop()

    def install(self, progress: Progress, match: Match) -> None:
        """Publishes what was fetched beyond the match, if there is room for it. The request is
        admitted then, and forgotten here."""
        fetch, self._fetch, self._asked_for = self._fetch, None, None
        if fetch is None:
            return
        cache, places = self._cache, fetch.places
        if not cache.can_take(len(places), beside=match):
            fetch.drop()
            return
        hold = cache.hold(match, counted=False)
        pages: list[int] = []
        cache.take(len(places), pages)
        row = cache.take_row() if fetch.has_snapshot else NO_ROW
        endpoint = fetch.install(pages, row)
        if endpoint > match.endpoint:
            listed = [NO_PAGE] * (max(places, default=-1) + 1)
            for place, page in zip(places, pages, strict=True):
                listed[place] = page
            whole = endpoint // cache.page_tokens
            listed += [NO_PAGE] * (whole - len(listed))
            published = cache.publish(hold, progress.tokens, endpoint, listed, row)
            moved = set(published.moved)
            pages = [page for page in pages if page not in moved]
            if published.row_taken:
                row = NO_ROW
        if row != NO_ROW:
            cache.give_back_row(row)
        cache.give_back(pages)
        cache.release(hold)
