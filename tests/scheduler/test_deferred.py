"""What completions leave for later: whoever could tell that it hasn't been done has it done first,
so that rounds, answers and what is cached are the same whenever it is done."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.errors import AdmissionError
from helios.runtime.rounds import Completion
from helios.scheduler import Request, SchedulerOptions
from helios.scheduler.cache import NO_PAGE, NO_ROW
from helios.scheduler.planned import PlannedRound
from tests.scheduler.driving import Driver, request
from tests.scheduler.histories import HISTORIES, PAGES, PARTIAL_PAGES, ROWS, History, driver_of

PROMPT = tuple(range(12))


def late(driver: Driver) -> Driver:
    """The driver, which settles where it is told to."""
    driver.at_once = False
    return driver


def lanes_of(planned: PlannedRound) -> list[int]:
    """Whose lanes a round has."""
    return [resident.progress.request.request_id for resident in planned.residents]


def until_told(driver: Driver, request_id: int) -> None:
    """Rounds until the request's first token has come."""
    while not driver.got[request_id].tokens:
        driver.launch()
        driver.complete()


def published(driver: Driver) -> int:
    return driver.scheduler.cache.counters.published_pages


def test_a_token_is_told_before_its_prompt_is_published_and_planning_does_not_wait() -> None:
    driver = late(driver_of(PAGES, page_tokens=4, pages=20))
    driver.submit(request(1, PROMPT, 3))
    until_told(driver, 1)
    assert not driver.scheduler.settled
    assert driver.launch() is not None
    assert published(driver) == 0
    driver.settle()
    assert driver.scheduler.settled
    assert published(driver) == 3


def test_who_has_ended_holds_its_slot_until_it_is_settled() -> None:
    driver = late(driver_of(PAGES, page_tokens=4, pages=20))
    driver.submit(request(1, PROMPT, 1))
    until_told(driver, 1)
    assert driver.launch() is None
    assert (driver.scheduler.running, driver.scheduler.idle) == (1, False)
    driver.settle()
    assert (driver.scheduler.running, driver.scheduler.idle) == (0, True)


def test_who_waits_finds_what_was_computed() -> None:
    driver = late(driver_of(PAGES, page_tokens=4, pages=20))
    driver.submit(request(1, PROMPT, 1))
    until_told(driver, 1)
    driver.submit(request(2, PROMPT, 1))
    until_told(driver, 2)
    assert driver.got[2].reused == 8


def test_who_lacks_a_page_gets_those_of_who_has_ended() -> None:
    driver = late(driver_of(PAGES, page_tokens=4, pages=5, slots=2))
    driver.submit(request(1, PROMPT[:7], 6), request(2, tuple(range(12, 19)), 1))
    until_told(driver, 2)
    while not driver.got[1].ended:
        assert driver.launch() is not None
        driver.complete()
    assert driver.scheduler.counters.preemptions == 0


def test_a_cancelled_request_leaves_the_prompt_that_it_had_computed() -> None:
    driver = late(driver_of(PAGES, page_tokens=4, pages=20))
    driver.submit(request(1, PROMPT, 3))
    until_told(driver, 1)
    driver.cancel(1)
    assert published(driver) == 3


def test_who_is_preempted_is_in_the_queue_at_its_last_fence() -> None:
    driver = late(driver_of(PAGES, page_tokens=4, pages=20, slots=1))
    driver.submit(request(1, PROMPT[:7], 12))
    until_told(driver, 1)
    while driver.scheduler.can_plan():
        assert driver.launch() is not None
    driver.submit(request(2, PROMPT[7:], 1, priority=-1))
    driver.complete()
    driver.launch()
    assert driver.scheduler.counters.preemptions == 1
    assert [lanes_of(planned) for planned in driver.in_flight] == [[1]]
    assert driver.scheduler.waiting == 1
    driver.complete()
    assert driver.scheduler.waiting == 2


def test_a_failure_of_the_device_leaves_nothing_to_be_settled() -> None:
    driver = late(driver_of(PAGES, page_tokens=4, pages=20))
    driver.submit(request(1, PROMPT, 1), request(2, PROMPT[:3], 9))
    until_told(driver, 1)
    driver.take(driver.scheduler.fail("it is gone"))
    driver.sequences.clear()
    assert driver.scheduler.settled
    assert driver.scheduler.idle
    driver.settle()


def test_a_reset_forgets_what_was_still_to_be_published() -> None:
    driver = late(driver_of(PAGES, page_tokens=4, pages=20))
    driver.submit(request(1, PROMPT, 3))
    until_told(driver, 1)
    driver.scheduler.reset_cache()
    driver.settle()
    assert list(driver.scheduler.cache.store.tree) == []


# ------------------------------------------------------------ any history, settled at once or late

Place = tuple[tuple[int, ...], ...]


def cached(driver: Driver) -> tuple[set[Place], list[tuple[Place, tuple[int, ...]]]]:
    """The tokens that lead to each page and to each snapshot."""
    pages: set[Place] = set()
    snapshots = []
    for node in driver.scheduler.cache.store.tree:
        place: Place = ()
        at = node
        while at.parent is not None:
            place, at = (at.tokens, *place), at.parent
        if node.page != NO_PAGE:
            pages.add(place)
        snapshots += [(place, snapshot.partial) for snapshot in node.snapshots]
    return pages, sorted(snapshots)


def launched(driver: Driver) -> list[tuple[object, ...]]:
    """The last round, but for which pages and rows its lanes have."""
    planned = driver.in_flight[-1]
    return [
        (planned.program.name, planned.packed_tokens),
        *(
            lane._replace(
                pages=[len(lane.pages)],
                restore_row=int(lane.restore_row != NO_ROW),
                snapshot_row=int(lane.snapshot_row != NO_ROW),
            )
            for lane in planned.round.lanes
        ),
    ]


class Pair:
    """Two drivers that get the same acts, of which one settles at once."""

    def __init__(self, make: Callable[[], Driver]) -> None:
        self.drivers = make(), late(make())
        self.requests: list[Request] = []

    def submit(self, one: Request) -> None:
        refused = []
        for driver in self.drivers:
            try:
                driver.submit(one)
            except AdmissionError as error:
                refused.append(str(error))
        assert len(refused) in (0, 2)
        assert len(set(refused)) < 2
        if not refused:
            self.requests.append(one)

    def launch(self) -> bool:
        at_once, later = self.drivers
        if not at_once.scheduler.can_plan():
            return False
        name = at_once.launch()
        assert later.launch() == name
        if name is not None:
            assert launched(later) == launched(at_once)
        return name is not None

    def complete(self, tamper: Callable[[Completion], Completion] | None = None) -> None:
        for driver in self.drivers:
            if tamper is not None:
                driver.model.tamper = tamper
            driver.complete()
            driver.model.tamper = lambda completion: completion
        self.compare()

    def compare(self) -> None:
        at_once, later = self.drivers
        assert at_once.got == later.got

    def settle(self) -> None:
        """Nothing can be told apart any more."""
        at_once, later = self.drivers
        later.settle()
        assert cached(at_once) == cached(later)
        assert at_once.scheduler.counters == later.scheduler.counters
        assert at_once.scheduler.cache.counters == later.scheduler.cache.counters
        for say in (
            lambda s: (s.running, s.waiting, s.idle, s.slots.free),
            lambda s: (s.pages.free, s.cache.evictable_pages),
            lambda s: (s.cache.rows.free, s.cache.evictable_rows),
        ):
            assert say(at_once.scheduler) == say(later.scheduler)

    def drain(self) -> None:
        while self.launch() or self.drivers[0].sequences:
            while self.launch():
                pass
            self.complete()


@pytest.mark.parametrize("history", [PARTIAL_PAGES, ROWS], ids=str)
def test_a_snapshot_that_is_not_published_yet_gives_way_like_a_published_one(
    history: History,
) -> None:
    for first, second, chunk in product(range(5, 14), range(5, 20, 2), (3, 4, 8)):
        options = SchedulerOptions(prefill_chunk_tokens=chunk)
        pair = Pair(partial(driver_of, history, options, rows=1, slots=2, pages=20))
        pair.submit(request(0, first, 1))
        pair.submit(request(1, second, 2))
        pair.drain()
        pair.settle()


@settings(max_examples=200, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("history", HISTORIES, ids=str)
def test_nothing_else_depends_on_when_it_is_done(history: History, data: st.DataObject) -> None:
    draw = data.draw
    shape = {
        "slots": draw(st.integers(1, 4)),
        "pages": draw(st.integers(4, 14)),
        "page_tokens": draw(st.sampled_from([1, 3, 4])),
        "rows": draw(st.integers(0, 4)),
        "mixed": ((8, 5),) if draw(st.booleans()) else (),
    }
    options = SchedulerOptions(
        prefill_chunk_tokens=draw(st.sampled_from([None, 3, 8])),
        frames_in_flight=draw(st.sampled_from([1, 2])),
        queue_capacity=8,
    )
    pair = Pair(lambda: driver_of(history, options, context=30, **shape))
    for _ in range(draw(st.integers(5, 40))):
        act = draw(st.sampled_from("ssllllccccpxrf"))
        if act == "s":
            known: list[int] = []
            if pair.requests and draw(st.booleans()):
                earlier = draw(st.sampled_from(pair.requests))
                known = [*earlier.prompt, *pair.drivers[0].got[earlier.request_id].tokens]
            prompt = [*known, *draw(st.lists(st.integers(0, 4), min_size=1, max_size=9))]
            pair.submit(
                request(
                    len(pair.drivers[0].got),
                    tuple(prompt[:20]),
                    draw(st.integers(1, 8)),
                    seed=draw(st.integers(0, 2)),
                    eos_ids=draw(st.sampled_from([(), (7, 11)])),
                    priority=draw(st.sampled_from([0, 0, 1, -1])),
                    sibling_of=draw(st.sampled_from([None, *pair.drivers[0].got])),
                )
            )
        elif act == "l":
            pair.launch()
        elif act == "c" and pair.drivers[0].sequences:
            pair.complete()
        elif act == "p":
            pair.settle()
        elif act == "x" and pair.requests:
            request_id = draw(st.sampled_from(pair.requests)).request_id
            for driver in pair.drivers:
                driver.cancel(request_id)
            pair.compare()
        elif act == "r" and not draw(st.integers(0, 4)):
            for driver in pair.drivers:
                driver.scheduler.reset_cache()
                driver.check()
        elif act == "f" and pair.drivers[0].sequences:
            pair.complete(_faulty)
    pair.drain()
    pair.settle()
    assert all(driver.scheduler.idle for driver in pair.drivers)


def _faulty(completion: Completion) -> Completion:
    """Wrong in its first lane, or, without lanes, as a whole."""
    if not completion.lanes:
        return completion._replace(sequence=completion.sequence + 1)
    first, *others = completion.lanes
    return completion._replace(lanes=(first._replace(consumed=first.consumed + 1), *others))
