"""Who is served first, and that everybody is served in the end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.errors import AdmissionError
from helios.scheduler import Request, SchedulerOptions
from helios.scheduler.ranking import AGE_ROUNDS, PRIORITIES, rank_of
from tests.scheduler.driving import request
from tests.scheduler.histories import (
    PAGES,
    PARTIAL_PAGES,
    ROWS,
    WINDOW,
    History,
    assert_as_alone,
    driver_of,
)


def test_waiting_makes_up_for_priority() -> None:
    assert rank_of(5, 0, 1) < rank_of(5, 0, 2) < rank_of(6, 0, 3)
    assert rank_of(5, -1, 9) < rank_of(5, 0, 1)
    assert rank_of(5 + AGE_ROUNDS, -1, 9) > rank_of(5, 0, 1)


def test_equals_are_served_in_the_order_of_arrival() -> None:
    driver = driver_of(PAGES, slots=1)
    driver.submit(*(request(i, prompt=3, limit=2) for i in range(5)))
    ended: list[int] = []
    while not driver.scheduler.idle:
        driver.turn()
        ended += [i for i in range(5) if driver.got[i].ended and i not in ended]
    assert ended == [0, 1, 2, 3, 4]


def test_the_more_urgent_waits_less() -> None:
    driver = driver_of(PAGES, slots=1)
    priorities = {0: 3, 1: 0, 2: -2, 3: 1}
    driver.submit(*(request(i, 3, 2, priority=p) for i, p in priorities.items()))
    ended: list[int] = []
    while not driver.scheduler.idle:
        driver.turn()
        ended += [i for i in priorities if driver.got[i].ended and i not in ended]
    assert ended == sorted(priorities, key=priorities.__getitem__)


def test_an_urgent_request_takes_the_slot_of_the_least_urgent_resident() -> None:
    driver = driver_of(PAGES, slots=2, pages=30)
    running = [request(1, 5, 25, priority=1), request(2, 5, 25)]
    driver.submit(*running)
    for _ in range(8):
        driver.turn()
    urgent = request(3, 5, 3, priority=-1)
    driver.submit(urgent)
    while not driver.got[3].ended:
        driver.turn()
        residents = {r.progress.request.request_id for r in driver.scheduler._residency.residents}
        assert 2 in residents
    assert not driver.got[1].ended
    driver.drain()
    assert driver.scheduler.counters.preemptions == 1
    assert_as_alone(driver, *running, urgent)


def test_nobody_gives_way_where_that_would_not_help() -> None:
    """The urgent request needs more pages than the less urgent ones have."""
    driver = driver_of(PAGES, slots=3, pages=10)
    first, small = request(1, 18, 6), request(2, 2, 20, priority=1)
    driver.submit(first, small)
    for _ in range(3):
        driver.turn()
    urgent = request(3, 28, 6, priority=0)
    driver.submit(urgent)
    driver.turn()
    assert driver.scheduler.counters.preemptions == 0
    driver.drain()
    assert_as_alone(driver, first, small, urgent)


def test_nobody_gives_way_for_pages_that_others_hold_too() -> None:
    """What the less urgent one has it shares with one that stays, so it would bring nothing."""
    driver = driver_of(PAGES, slots=4, pages=12)
    common = tuple(range(16))
    driver.submit(request(0, common, 1))
    driver.drain()
    stays, shares = request(1, (*common, 1), 20), request(2, (*common, 2), 3, priority=2)
    for one in (stays, shares):
        driver.submit(one)
        driver.turn()
        driver.turn()
    urgent = request(3, 28, 6, priority=1)
    driver.submit(urgent)
    driver.turn()
    assert driver.scheduler.counters.preemptions == 0
    driver.drain()
    assert_as_alone(driver, stays, shares, urgent)


def test_equals_never_take_each_others_slots() -> None:
    driver = driver_of(PAGES, slots=1, pages=30)
    driver.submit(request(1, 5, 25))
    for _ in range(8):
        driver.turn()
    driver.submit(request(2, 5, 3))
    driver.drain()
    assert driver.scheduler.counters.preemptions == 0


@pytest.mark.parametrize("priority", [PRIORITIES + 1, -PRIORITIES - 1])
def test_priorities_are_bounded(priority: int) -> None:
    driver = driver_of(PAGES)
    with pytest.raises(AdmissionError, match=f"the priority is {priority}"):
        driver.submit(request(1, priority=priority))


@given(data=st.data(), history=st.sampled_from([PAGES, PARTIAL_PAGES, ROWS, WINDOW]))
@settings(max_examples=40, deadline=None)
def test_nobody_starves_whatever_arrives_later(data: st.DataObject, history: History) -> None:
    """One request of little urgency, and for ever others of more: the server is always full. It
    ends within the rounds that priorities can be worth, and those that its predecessors take."""
    age = 6
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("helios.scheduler.ranking.AGE_ROUNDS", age)
        driver = driver_of(
            history,
            SchedulerOptions(queue_capacity=4, frames_in_flight=data.draw(st.sampled_from([1, 2]))),
            slots=data.draw(st.integers(1, 3)),
            pages=data.draw(st.integers(7, 12)),
            context=28,
        )
        patient = request(0, 9, data.draw(st.integers(1, 9)), priority=2)
        driver.submit(patient)
        requests: list[Request] = [patient]
        # 24 rounds until nobody who arrives precedes it; at most 7 requests that do are live then,
        # each of at most 24 tokens, some of them computed again for a predecessor of theirs.
        bound = 4 * age + 7 * 24 * 4
        rounds = 0
        while not driver.got[0].ended:
            while driver.scheduler.waiting < 3:
                one = request(
                    len(requests),
                    data.draw(st.integers(1, 12)),
                    data.draw(st.integers(1, 12)),
                    priority=data.draw(st.sampled_from([-2, -1, 0])),
                )
                requests.append(one)
                driver.submit(one)
            rounds += len(driver.turn())
            assert rounds <= bound
        driver.scheduler.cancel_all()
        assert_as_alone(driver, patient)


def test_a_temporary_shortage_waits_and_refuses_nobody() -> None:
    driver = driver_of(PAGES, slots=4, pages=6)
    requests = [request(i, 16, 6) for i in range(4)]
    driver.submit(*requests)
    driver.drain()
    assert driver.scheduler.counters.rejected == 0
    assert_as_alone(driver, *requests)
