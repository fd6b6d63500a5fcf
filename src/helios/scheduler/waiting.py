"""Requests that wait for a slot, by rank, and what of the first one's prompt can be reused.

Only the first is ever admitted, so only its prompt is matched. Matching walks the whole prompt;
while nothing can have made the answer longer, the last one is kept and counts as a bound.
`Residency` is the caller.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from operator import attrgetter

from helios.scheduler.cache import Match, PrefixCache
from helios.scheduler.fetching import Fetching
from helios.scheduler.requests import Progress

_BY_RANK = attrgetter("rank")


class Waiting:
    """A queue by rank. `reuse` says whether prompts are matched at all, `fetching` brings in what a
    second tier has of them, where there is one."""

    def __init__(self, cache: PrefixCache, fetching: Fetching | None, *, reuse: bool) -> None:
        self._cache = cache
        self._fetching = fetching
        self._reuse = reuse
        self._queue: list[Progress] = []
        # Those in the queue that have never been admitted, without siblings of live leaders.
        self.pending = 0
        self._matched: Progress | None = None
        self._match: Match | None = None
        self._published = 0

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Progress]:
        return iter(self._queue)

    @property
    def first(self) -> Progress:
        """The request to be admitted next; ask for the length first."""
        return self._queue[0]

    def put(self, progress: Progress) -> None:
        """Queues a request at its rank."""
        self.pending += progress.is_pending
        insort(self._queue, progress, key=_BY_RANK)

    def pop(self) -> Progress:
        """Takes the first request out."""
        progress = self._queue.pop(0)
        self.pending -= progress.is_pending
        if self._fetching is not None and self._fetching.knows(progress):
            self._fetching.drop()
        return progress

    def remove(self, progress: Progress) -> None:
        """Takes a request out, wherever it is."""
        self._queue.remove(progress)
        self.pending -= progress.is_pending
        if self._fetching is not None and self._fetching.knows(progress):
            self._fetching.drop()

    def clear(self) -> None:
        """Forgets every request."""
        self._queue.clear()
        self.pending = 0
        self._matched = self._match = None
        if self._fetching is not None:
            self._fetching.drop()

    # ------------------------------------------------------------ the second tier

    def awaits_content(self) -> bool:
        """Whether content for the first request is on its way from the second tier; asks for it
        the first time, and takes in what has arrived."""
        if self._fetching is None or not self._queue:
            return False
        first = self.first
        if not self._fetching.knows(first):
            matched = self.current_match().endpoint
            self._fetching.begin(first, matched, self.reusable(first))
        return self._fetching.go_on()

    def wait_for_content(self, timeout_ms: int) -> None:
        """Waits at most so long for content that is on its way."""
        if self._fetching is not None:
            self._fetching.wait(timeout_ms)

    def forget_content(self) -> None:
        """Drops what is on its way; the first request asks anew."""
        if self._fetching is not None:
            self._fetching.drop()

    # ------------------------------------------------------------ matches

    def match_bound(self) -> Match:
        """A match of the first request's prompt that is no shorter than the current one."""
        progress, counters = self.first, self._cache.counters
        published = counters.published_pages + counters.published_snapshots
        match = self._match
        if match is None or self._matched is not progress or self._published != published:
            match = self._cache.match(progress.tokens, self.reusable(progress))
            self._match, self._matched, self._published = match, progress, published
        return match

    def current_match(self) -> Match:
        """The match of the first request's prompt, fit to be held."""
        match = self.match_bound()
        if not self._cache.is_current(match):
            self._match = None
            match = self.match_bound()
        return match

    def reusable(self, progress: Progress) -> int:
        """How many of a request's tokens may come from the cache: all but the last, which must be
        consumed for a token to follow, and none where the prompt's own logprobs are wanted."""
        reuses = self._reuse and progress.request.prefix_reuse
        return progress.needed_from if reuses else 0
