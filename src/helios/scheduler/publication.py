"""What a resident has computed goes into the prefix cache, after the fence of the rounds that
wrote it.

Until then its pages and snapshots are private, and they stay so for good where the request was
stopped by the host, cancelled or failed. Whole pages up to an endpoint are published, and a
snapshot where one was taken. Called by `Scheduler` at fences and by `Residency` when a resident
ends.
"""

from __future__ import annotations

from helios.scheduler.cache import NO_PAGE, NO_ROW, PrefixCache
from helios.scheduler.requests import Ending, Phase, Resident

_DROPPED = (Ending.STOPPED, Ending.CANCELLED, Ending.FAILED)


class Publication:
    """Publishes for residents. `reuse` says whether anything is published at all."""

    def __init__(self, cache: PrefixCache, *, reuse: bool) -> None:
        self._cache = cache
        self._reuse = reuse

    def publishes(self, resident: Resident) -> bool:
        """Whether others may use what the resident computes."""
        return self._reuse and resident.progress.request.prefix_reuse

    def prompt_completed(self, resident: Resident) -> None:
        """The fence of its prompt's last chunk has passed. One that ends here is published when
        it ends."""
        if resident.phase is not Phase.ENDING:
            self.publish(resident, resident.consumed)

    def ended(self, resident: Resident) -> None:
        """Its last fence has passed: what it has is published, unless it must be dropped."""
        if resident.ending not in _DROPPED:
            self.publish(resident, resident.consumed)

    def saved(self, resident: Resident, endpoint: int, row: int) -> None:
        """The fence of a snapshot of `endpoint` in `row` has passed. It is dropped where the
        request turned out to have ended before that endpoint."""
        consumed = resident.consumed
        named = self._cache.rules.names_endpoint and endpoint < consumed
        holds = resident.ending not in _DROPPED and (endpoint == consumed or named)
        if not (holds and self.publish(resident, endpoint, row)):
            self._cache.give_back_row(row)

    def publish(self, resident: Resident, endpoint: int, row: int = NO_ROW) -> bool:
        """Publishes the whole pages of the first `endpoint` tokens and the snapshot in `row`;
        whether the row was taken."""
        if not self.publishes(resident):
            return False
        private, depth = resident.private, resident.hold.depth
        whole = endpoint // self._cache.page_tokens
        if whole <= depth and row == NO_ROW:
            return False
        # Places without a private page from `depth` on were given back before the window.
        pages = [NO_PAGE] * depth + [private.get(place, NO_PAGE) for place in range(depth, whole)]
        published = self._cache.publish(
            resident.hold, resident.progress.tokens, endpoint, pages, row
        )
        moved = set(published.moved)
        for place in range(depth, whole):
            if private.get(place) in moved:
                del private[place]
        return published.row_taken
