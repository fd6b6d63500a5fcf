"""Looking ahead changes no round: what was planned ahead is what planning makes without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from helios.runtime.geometry import Operation
from helios.scheduler import Finish, SchedulerOptions
from helios.scheduler.cohorts import Cohorts
from helios.scheduler.planned import PlannedRound
from helios.scheduler.requests import Phase, Resident
from tests.scheduler.driving import Driver, request
from tests.scheduler.fake_model import FakeModel, alone, geometry
from tests.scheduler.histories import PAGES, driver_of
from tests.scheduler.test_properties import SchedulerMachine


def cohorts_of(driver: Driver) -> Cohorts:
    return driver.scheduler._planner._cohorts


def compare(cohorts: Cohorts) -> list[PlannedRound]:
    """Holds every round that was planned ahead against the one that would be planned now; returns
    the list of those that come."""
    taken: list[PlannedRound] = []
    still_ahead: Callable[[Sequence[Resident]], PlannedRound | None] = cohorts._still_ahead

    def compared(decoding: Sequence[Resident]) -> PlannedRound | None:
        found = still_ahead(decoding)
        if found is not None:
            # Nothing is ahead any more, so this is made anew.
            assert cohorts.decode_round(decoding) == found
            taken.append(found)
        return found

    cohorts._still_ahead = compared  # type: ignore[method-assign]
    return taken


class AheadMachine(SchedulerMachine):
    """Looks ahead whenever it may, among all that the other machine does."""

    @initialize()
    def compared(self) -> None:
        self.comparing = False

    @rule()
    def look_ahead(self) -> None:
        self._look()

    @rule(turns=st.integers(1, 6))
    def several_turns_ahead(self, turns: int) -> None:
        for _ in range(turns):
            driver = self.driver
            while driver.scheduler.can_plan() and driver.launch() is not None:
                pass
            self._look()
            if driver.sequences:
                driver.complete()

    def _look(self) -> None:
        if not self.comparing:
            compare(cohorts_of(self.driver))
            self.comparing = True
        self.driver.scheduler.look_ahead()
        self.driver.check()


AheadMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAhead = AheadMachine.TestCase


def running(*limits: int, **shape: Any) -> Driver:
    """A driver whose requests decode, none of them in flight."""
    driver = Driver(FakeModel(geometry(**shape)), SchedulerOptions(frames_in_flight=1))
    driver.submit(*(request(number, 5, limit) for number, limit in enumerate(limits)))
    while not driver.turn()[0].startswith("decode"):
        pass
    return driver


def ahead_of(driver: Driver) -> PlannedRound | None:
    """A turn of the loop with a look ahead while its round runs; what that saw."""
    driver.launch()
    ahead = driver.scheduler.look_ahead()
    driver.complete()
    return ahead


def test_decode_rounds_are_planned_while_the_one_before_runs() -> None:
    driver = running(20, 20)
    taken = compare(cohorts_of(driver))
    for number in range(12):  # over the ends of pages
        assert ahead_of(driver) is not None
        assert len(taken) == number
    driver.drain()
    assert [driver.got[number].tokens for number in (0, 1)] == [
        alone(request(number, 5, 20))[0] for number in (0, 1)
    ]


def test_a_round_that_was_planned_ahead_isn_t_planned_again() -> None:
    driver = running(20)
    ahead = ahead_of(driver)
    assert ahead is not None
    assert driver.scheduler.plan() is ahead


def test_who_ends_isn_t_in_the_next_round_although_it_was_planned_ahead() -> None:
    driver = running(20, 20)
    ahead = ahead_of(driver)
    assert ahead is not None
    assert len(ahead.residents) == 2
    driver.cancel(1)
    planned = driver.scheduler.plan()
    assert planned is not None
    assert [resident.progress.request.request_id for resident in planned.residents] == [0]
    assert driver.got[1].finish is Finish.CANCELLED


def test_who_comes_is_admitted_before_what_was_planned_ahead() -> None:
    driver = running(20)
    assert ahead_of(driver) is not None
    driver.submit(request(7, 5, 3))
    assert driver.turn() == ["initialize.b1"]


def test_who_reaches_its_limit_doesn_t_keep_the_others_from_being_planned() -> None:
    driver = running(3, 20)
    while not driver.got[0].ended:
        ahead = ahead_of(driver)
    assert ahead is not None
    assert len(ahead.residents) == 1
    assert driver.scheduler.plan() is ahead


def test_nobody_is_preempted_ahead() -> None:
    driver = running(24, 24, 24, pages=8)
    counters, ahead = driver.scheduler.counters, None
    for _ in range(24):
        if driver.launch() is None or counters.preemptions:
            break
        ahead = driver.scheduler.look_ahead()
        assert not counters.preemptions
        driver.complete()
    assert counters.preemptions
    assert ahead is None
    driver.drain()
    for number in range(3):
        assert driver.got[number].tokens == alone(request(number, 5, 24))[0]


def test_what_needs_the_last_token_isn_t_planned_ahead() -> None:
    driver = running(20, host_fed=(Operation.DECODE,))
    assert ahead_of(driver) is None


def swap(residents: list[Resident]) -> None:
    residents.reverse()


def preempt(residents: list[Resident]) -> None:
    residents[0].phase = Phase.ENDING


def go_on(residents: list[Resident]) -> None:
    residents[1].planned_consumed += 1


@pytest.mark.parametrize("change", [swap, preempt, go_on])
def test_what_was_planned_ahead_is_dropped_where_something_has_changed(
    change: Callable[[list[Resident]], None],
) -> None:
    driver = running(20, 20)
    assert ahead_of(driver) is not None
    cohorts = cohorts_of(driver)
    _, decoding = cohorts.waiting()
    change(decoding)
    assert cohorts._still_ahead(decoding) is None


def test_what_was_planned_ahead_goes_at_most_once() -> None:
    driver = running(20, 20)
    assert ahead_of(driver) is not None
    cohorts = cohorts_of(driver)
    _, decoding = cohorts.waiting()
    assert cohorts._still_ahead(decoding) is not None
    assert cohorts._still_ahead(decoding) is None


def test_nothing_cached_is_evicted_for_a_round_that_may_never_come() -> None:
    driver = driver_of(PAGES, page_tokens=4, pages=5, slots=2)
    driver.at_once = False
    prompt = tuple(range(12))

    def until(request_id: int, tokens: int) -> None:
        while len(driver.got[request_id].tokens) < tokens:
            assert driver.launch() is not None
            driver.settle()
            driver.scheduler.look_ahead()
            driver.complete()
        driver.settle()

    driver.submit(request(1, prompt, 1))
    until(1, 1)
    driver.submit(request(2, tuple(range(12, 19)), 12))
    until(2, 6)
    driver.cancel(2)
    driver.submit(request(3, prompt, 1))
    until(3, 1)
    assert driver.got[3].reused == 8


def test_a_page_taken_ahead_is_free_again_as_soon_as_its_request_ends() -> None:
    driver = running(20)
    pages = driver.scheduler.pages
    while True:
        driver.launch()
        free = pages.free
        driver.scheduler.look_ahead()
        if pages.free < free:
            break
        driver.complete()
    driver.cancel(0)
    assert driver.sequences
    assert pages.free == free
    driver.drain()
    assert pages.free == pages.pages


def evicted(told: int, *, ahead: bool) -> tuple[int, int]:
    """Pages evicted, and how many tokens of a cached prompt are still found: one request decodes
    until so many of its tokens have been told, then another comes, and both go."""
    driver = driver_of(PAGES, SchedulerOptions(frames_in_flight=1), page_tokens=2, pages=12)
    cached = tuple(range(8))

    def turn() -> None:
        driver.launch()
        driver.settle()
        if ahead:
            driver.scheduler.look_ahead()
        driver.complete()

    driver.submit(request(1, cached, 1))
    driver.drain()
    driver.submit(request(2, tuple(range(8, 15)), 12))
    while len(driver.got[2].tokens) < told:
        turn()
    driver.submit(request(3, (22, 21, 20), 1))
    while not driver.got[3].ended:
        turn()
    driver.cancel(2)
    driver.drain()
    driver.submit(request(4, (*cached, 1), 1))
    driver.drain()
    return driver.scheduler.cache.counters.evicted_pages, driver.got[4].reused


@pytest.mark.parametrize("told", range(1, 12))
def test_a_prompt_that_goes_first_evicts_nothing_for_want_of_a_page_taken_ahead(told: int) -> None:
    assert evicted(told, ahead=True) == evicted(told, ahead=False)
