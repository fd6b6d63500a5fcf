"""The residents and what they hold: slots, pages, and the queue they come from and return to.

Question and act go in pairs: `can_admit` and `admit`, `reach` and `cover`. A resident that ends
keeps its slot and pages until the last of its submitted rounds has passed its fence; then
`settle` publishes what others may use and gives the rest back. It makes no rounds; the planners
and `Scheduler` call it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from operator import attrgetter

from helios.runtime.geometry import Geometry
from helios.scheduler.admission import pages_to_admit, window_pages
from helios.scheduler.cache import Match, PrefixCache
from helios.scheduler.counters import SchedulerCounters
from helios.scheduler.deferred import Deferred
from helios.scheduler.publication import Publication
from helios.scheduler.ranking import Rank
from helios.scheduler.requests import Ending, Phase, Progress, Resident
from helios.scheduler.slots import SlotPool
from helios.scheduler.snapshots import Snapshots
from helios.scheduler.waiting import Waiting

_BY_RANK = attrgetter("rank")
_LEAVING = (Phase.ENDING, Phase.EXHAUSTED)


class Residency:
    """`residents` are sorted by rank, most urgent first; `admitted` are those among them that
    have had no round yet. The first of `waiting` is admitted next; preemption takes the resident
    of the highest rank, and puts its request back."""

    def __init__(
        self,
        geometry: Geometry,
        slots: SlotPool,
        cache: PrefixCache,
        waiting: Waiting,
        publication: Publication,
        snapshots: Snapshots,
        counters: SchedulerCounters,
        deferred: Deferred,
    ) -> None:
        self.slots = slots
        self.cache = cache
        self.waiting = waiting
        self.counters = counters
        self.residents: list[Resident] = []
        self.admitted: list[Resident] = []
        self._publication = publication
        self._snapshots = snapshots
        self._deferred = deferred
        self._page_tokens = geometry.page_tokens
        self._window_pages = window_pages(geometry)
        # The request that was last refused for want of pages, and the slack there was then.
        self._refused: Progress | None = None
        self._refused_slack = 0

    def of(self, progress: Progress) -> Resident | None:
        """The resident of a request, if it is one."""
        return next((r for r in self.residents if r.progress is progress), None)

    # ------------------------------------------------------------ admission

    def can_admit(self) -> bool:
        """Whether the first that waits can become resident now. Pages that residents were admitted
        for and haven't taken yet count as taken, pages that can be evicted as free."""
        if not self.waiting or self.waiting.awaits_content() or not self.slots.can_take():
            return False
        first, cache = self.waiting.first, self.cache
        available = cache.pages.free + cache.evictable_pages
        needed = self._missing(first, self.waiting.match_bound())
        if needed > available:
            return False
        promised = sum(self._promised(resident) for resident in self.residents)
        slack = available - promised
        # Nothing changes for the better unless slack grows or the match gets longer; the latter
        # makes it another bound.
        if needed > slack or (self._refused is first and slack <= self._refused_slack):
            return False
        match = self.waiting.current_match()
        needed = self._missing(first, match)
        if cache.can_take(needed + promised, beside=match):
            return True
        self._refused, self._refused_slack = first, slack
        return False

    def _missing(self, progress: Progress, match: Match) -> int:
        """Pages to be found for a request beyond those that it can share."""
        shared = len(match.pages)
        every = pages_to_admit(progress, len(progress.tokens), self._page_tokens)
        return min(every - shared, self._window_pages - (shared - match.first))

    def _promised(self, resident: Resident) -> int:
        """Pages that a resident was admitted for and hasn't taken yet, or that it needs at once:
        who was admitted with those would be preempted before it could do anything, for ever."""
        if resident.phase is Phase.DECODING:
            return int(resident.planned_consumed == resident.covered)
        if resident.phase not in (Phase.ADMITTED, Phase.PREFILLING, Phase.SAVING):
            return 0
        every = pages_to_admit(resident.progress, resident.prompt_tokens, self._page_tokens)
        places = len(resident.pages)
        held = places - resident.first_page
        return max(min(every - places, self._window_pages - held), 0)

    def admit(self) -> Resident:
        """Gives the first that waits a slot and holds what its prompt shares; ask `can_admit`
        first. Pages of its own come with its rounds."""
        match = self.waiting.current_match()
        progress = self.waiting.pop()
        self.counters.prefix_looked_up(self.waiting.reusable(progress))
        slot, generation = self.slots.take()
        if progress.reused < 0:
            progress.reused = match.endpoint
            self.counters.cached_tokens += match.endpoint
        resident = Resident(
            progress=progress,
            slot=slot,
            generation=generation,
            prompt_tokens=len(progress.tokens),
            planned_emitted=progress.emitted + progress.forced,
            hold=self.cache.hold(match),
            chunk_end=len(progress.tokens),
            pages=list(match.pages),
            covered=len(match.pages) * self._page_tokens,
            first_page=self.cache.first_page(match.endpoint),
            saved=match.endpoint,
        )
        insort(self.residents, resident, key=_BY_RANK)
        insort(self.admitted, resident, key=_BY_RANK)
        return resident

    def refresh(self, resident: Resident) -> None:
        """The resident's state is written anew, where it stands, before it goes on with the tokens
        that it has been given."""
        resident.refreshes, resident.phase = True, Phase.ADMITTED
        resident.prompt_tokens = resident.chunk_end = len(resident.progress.tokens)
        resident.planned_emitted += resident.progress.forced
        insort(self.admitted, resident, key=_BY_RANK)

    def begun(self, residents: Iterable[Resident]) -> None:
        """The round that gives new residents their state has been submitted."""
        for resident in residents:
            self.admitted.remove(resident)

    # ------------------------------------------------------------ pages

    def reach(self, resident: Resident, tokens: int) -> int:
        """How many of its first `tokens` tokens the resident's pages and those to be had could
        hold."""
        size, pages = self._page_tokens, self.cache.pages
        if tokens <= resident.covered + pages.free * size:
            return tokens
        self._deferred.run()
        return min(tokens, resident.covered + (pages.free + self.cache.evictable_pages) * size)

    def cover(self, resident: Resident, tokens: int) -> None:
        """Gives the resident the pages for its first `tokens` tokens; `reach` says how many can
        be covered."""
        if tokens > resident.covered:
            pages = resident.pages
            have = len(pages)
            self.cache.take(-(-tokens // self._page_tokens) - have, pages)
            resident.covered = len(pages) * self._page_tokens
            resident.private.update(zip(range(have, len(pages)), pages[have:], strict=True))

    def slide(self, resident: Resident) -> None:
        """Gives back what lies before the window: no round in flight reads it any more, since all
        of them begin at `consumed` or later."""
        first = self.cache.first_page(resident.consumed)
        if first <= resident.first_page:
            return
        passed = range(resident.first_page, first)
        self.cache.give_back([p for i in passed if (p := resident.private.pop(i, -1)) >= 0])
        self.cache.slide(resident.hold, resident.consumed)
        resident.first_page = first

    def make_room(self, resident: Resident) -> bool:
        """Preempts the residents of the highest ranks until a page can be had; True if one can.

        Nobody is preempted while pages are about to come back anyway, nor for a resident that has
        the highest rank itself: it waits and keeps its pages, until another one needs them.
        """
        if self.cache.pages.free:
            return True
        self._deferred.run()
        while not self.cache.can_take(1):
            if self._anyone_leaving():
                return False
            last = self.residents[-1]
            if last is not resident:
                self.preempt(last)
                continue
            # Alone it can lack a page only where it has pages of its own beside published ones of
            # the same tokens: readmitted, it shares them.
            if len(self.residents) == 1 and not resident.rounds_in_flight:
                self.preempt(resident)
            return False
        return True

    def _anyone_leaving(self) -> bool:
        """Whether pages and a slot are about to come back anyway."""
        return any(resident.phase in _LEAVING for resident in self.residents)

    def make_way(self) -> bool:
        """Preempts one resident for a more urgent request that waits, if that can help; whether
        it did. It takes a higher priority: who has only come earlier, as a sibling that waited for
        its leader's prompt, waits for a slot."""
        if not self.waiting or not self.residents:
            return False
        first, last = self.waiting.first, self.residents[-1]
        if last.rank <= first.rank or last.priority <= first.request.priority:
            return False
        if self._anyone_leaving() or self.waiting.awaits_content():
            return False
        if not self._would_admit(first.rank):
            return False
        self.preempt(last)
        return True

    def _would_admit(self, rank: Rank) -> bool:
        """Whether the first that waits would find its pages, if all residents behind `rank` gave
        way. Pages that others hold too, or that it shares itself, don't come back."""
        cache, first = self.cache, self.waiting.first
        ahead = [r for r in self.residents if r.rank <= rank]
        behind = [r for r in self.residents if r.rank > rank]
        held = sum(len(r.private) + r.hold.depth for r in behind)
        needed = sum(self._promised(r) for r in ahead)
        if needed + self._missing(first, self.waiting.match_bound()) > (
            cache.pages.free + cache.evictable_pages + held
        ):
            return False
        match = self.waiting.current_match()
        needed += self._missing(first, match) - sum(len(r.private) for r in behind)
        return cache.can_take(needed, beside=match, released=[r.hold for r in behind])

    # ------------------------------------------------------------ ends

    def preempt(self, resident: Resident) -> None:
        """Sends a resident back to the queue after its last fence. What it has computed stays
        published as long as nobody needs the pages; a snapshot keeps the rest where it pays."""
        self.counters.preemptions += 1
        self.leave(resident, Ending.PREEMPTED)
        if self._snapshots.ask(resident, resident.planned_consumed):
            self.counters.preemptions_by_snapshot += 1
        self.settle(resident)

    def finish(self, resident: Resident) -> None:
        """The device has finished the request; the caller settles."""
        self.leave(resident, Ending.FINISHED)
        self._snapshots.ask(resident, resident.consumed)

    def end(self, resident: Resident, ending: Ending) -> None:
        """No further round is planned for the resident and nothing more of it is published; a
        later reason replaces preemption."""
        self.leave(resident, ending)
        self.settle(resident)

    def leave(self, resident: Resident, ending: Ending) -> None:
        """No further round is planned for the resident, and no snapshot; the caller settles."""
        if resident.phase is Phase.ADMITTED:
            self.admitted.remove(resident)
        resident.phase, resident.ending = Phase.ENDING, ending
        self.uncover(resident)
        self._snapshots.drop(resident)

    def uncover(self, resident: Resident) -> None:
        """Gives back the pages that no submitted round knows: they were taken for one that was
        planned ahead and doesn't come."""
        pages = resident.pages
        used = -(-resident.planned_consumed // self._page_tokens)
        if len(pages) > used:
            places = range(used, len(pages))
            self.cache.give_back([p for i in places if (p := resident.private.pop(i, -1)) >= 0])
            del pages[used:]
            resident.covered = used * self._page_tokens

    def settle(self, resident: Resident) -> None:
        """Gives back what an ending resident holds once none of its rounds is due or in flight and
        the host has decided about its last token."""
        if resident.phase is not Phase.ENDING or resident.rounds_in_flight:
            return
        if resident.due_endpoint >= 0 or resident.undecided:
            return
        self.residents.remove(resident)
        self.slots.give_back(resident.slot)
        self._publication.ended(resident)
        self.cache.release(resident.hold)
        self.cache.give_back(list(resident.private.values()))
        resident.private.clear()
        if resident.ending is Ending.PREEMPTED:
            self.waiting.put(resident.progress)
