"""The residents and what they hold: slots, pages, and the queue they come from and return to.

Question and act go in pairs: `can_admit` and `admit`, `reach` and `cover`. A resident that ends
keeps its slot and pages until the last of its submitted rounds has passed its fence; then
`settle` gives them back. It makes no rounds; `RoundPlanner` and `Scheduler` call it.
"""

from __future__ import annotations

from collections import deque

from helios.scheduler.admission import pages_to_admit
from helios.scheduler.counters import SchedulerCounters
from helios.scheduler.pages import PagePool
from helios.scheduler.requests import Ending, Phase, Progress, Resident
from helios.scheduler.slots import SlotPool


class Residency:
    """`residents` are sorted by order of arrival, oldest first, and all of them arrived before
    the requests in `waiting`: admission takes the head, preemption puts the youngest back."""

    def __init__(self, slots: SlotPool, pages: PagePool, counters: SchedulerCounters) -> None:
        self.slots = slots
        self.pages = pages
        self.counters = counters
        self.waiting: deque[Progress] = deque()
        self.residents: list[Resident] = []

    def can_admit(self) -> bool:
        """Whether the head of the queue can become resident now. Pages that residents were
        admitted for and haven't taken yet count as taken."""
        if not self.waiting or not self.slots.can_take():
            return False
        head = self.waiting[0]
        needed = pages_to_admit(head, len(head.tokens), self.pages.page_tokens)
        for resident in self.residents:
            if resident.phase is Phase.ADMITTED or resident.phase is Phase.PREFILLING:
                promised = pages_to_admit(
                    resident.progress, resident.prompt_tokens, self.pages.page_tokens
                )
                needed += promised - len(resident.pages)
        return self.pages.can_take(needed)

    def admit(self) -> Resident:
        """Gives the head of the queue a slot; ask `can_admit` first. Its pages come with its
        rounds."""
        progress = self.waiting.popleft()
        slot, generation = self.slots.take()
        resident = Resident(
            progress=progress,
            slot=slot,
            generation=generation,
            prompt_tokens=len(progress.tokens),
            planned_emitted=progress.emitted,
        )
        self.residents.append(resident)
        return resident

    def reach(self, resident: Resident) -> int:
        """The number of tokens that the resident's pages and the free ones could hold."""
        return resident.covered + self.pages.free * self.pages.page_tokens

    def cover(self, resident: Resident, tokens: int) -> None:
        """Gives the resident the pages for its first `tokens` tokens; `reach` says how many can
        be covered."""
        if tokens > resident.covered:
            pages = self.pages.needed_for(tokens) - len(resident.pages)
            self.pages.take(pages, resident.pages)
            resident.covered = len(resident.pages) * self.pages.page_tokens

    def make_room(self, resident: Resident) -> bool:
        """Preempts the youngest residents until a page is free; True if one is.

        Nobody is preempted while pages are about to come back anyway, nor for a resident that is
        the youngest itself: it waits and keeps its pages, until an older one needs them.
        """
        while not self.pages.free:
            youngest = self.residents[-1]
            if youngest is resident or any(
                other.phase is Phase.ENDING or other.phase is Phase.EXHAUSTED
                for other in self.residents
            ):
                return False
            self.counters.preemptions += 1
            self.end(youngest, Ending.PREEMPTED)
        return True

    def end(self, resident: Resident, ending: Ending) -> None:
        """No further round is planned for the resident; a later reason replaces preemption."""
        resident.phase = Phase.ENDING
        resident.ending = ending
        self.settle(resident)

    def settle(self, resident: Resident) -> None:
        """Gives back what an ending resident holds once none of its rounds is in flight."""
        if resident.phase is not Phase.ENDING or resident.rounds_in_flight:
            return
        self.residents.remove(resident)
        self.slots.give_back(resident.slot)
        self.pages.give_back(resident.pages)
        if resident.ending is Ending.PREEMPTED:
            self.waiting.appendleft(resident.progress)

    def check_books(self) -> None:
        """Asserts that slots and pages are each free or held once, that residents hold the pages
        their rounds need, and that the order of arrival is kept."""
        self.slots.check_books([resident.slot for resident in self.residents])
        self.pages.check_books([resident.pages for resident in self.residents])
        orders = [r.order for r in self.residents] + [p.order for p in self.waiting]
        assert orders == sorted(set(orders)), f"the order of arrival is broken: {orders}"
        for resident in self.residents:
            assert resident.covered == len(resident.pages) * self.pages.page_tokens
            assert resident.consumed <= resident.planned_consumed <= resident.covered
            assert resident.rounds_in_flight or resident.phase is not Phase.ENDING
