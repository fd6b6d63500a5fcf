"""Choices of one question: the first computes the prompt, the others begin from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helios.errors import AdmissionError
from helios.runtime.rounds import Completion
from helios.scheduler import Finish, Request, SchedulerOptions
from tests.scheduler.driving import Driver, request
from tests.scheduler.fake_model import FakeModel, geometry
from tests.scheduler.histories import (
    NOTHING,
    PAGES,
    PARTIAL_PAGES,
    ROWS,
    History,
    assert_as_alone,
    driver_of,
    prefilled,
)

PROMPT = tuple((5 * i + 2) % 23 for i in range(14))


def choices(count: int, prompt: tuple[int, ...] = PROMPT, limit: int = 5) -> list[Request]:
    """Requests 1 to `count` with seeds of their own."""
    return [
        request(n, prompt, limit, seed=40 + n, sibling_of=1 if n > 1 else None)
        for n in range(1, count + 1)
    ]


@pytest.mark.parametrize("limit", [1, 2, 7])
@pytest.mark.parametrize("length", [2, 4, 5, 13, 14])
@pytest.mark.parametrize("history", [PARTIAL_PAGES], ids=str)
def test_the_prompt_is_computed_once_and_its_pages_are_shared(
    history: History, length: int, limit: int
) -> None:
    driver = driver_of(history, pages=40, slots=4)
    asked = choices(4, PROMPT[:length], limit)
    driver.submit(*asked)
    programs = driver.drain()
    assert prefilled(driver) == length
    assert sum(name.startswith("resume") for name in programs) >= 1
    assert [driver.got[n].reused for n in (1, 2, 3, 4)] == [0, *[length - 1] * 3]
    for one in asked:
        assert_as_alone(driver, one)


@pytest.mark.parametrize("history", [PAGES, ROWS], ids=str)
def test_what_can_t_be_shared_is_less_than_a_page_or_the_last_token(history: History) -> None:
    driver = driver_of(history, pages=40, slots=4)
    asked = choices(4)
    driver.submit(*asked)
    driver.drain()
    assert prefilled(driver) <= 14 + 3 * 2
    for one in asked:
        assert_as_alone(driver, one)


def test_more_choices_than_slots_and_pages_wait_their_turn() -> None:
    driver = driver_of(PARTIAL_PAGES, pages=9, slots=2)
    asked = choices(9, limit=8)
    driver.submit(*asked)
    driver.drain()
    for one in asked:
        assert_as_alone(driver, one)


@pytest.mark.parametrize("reuse", ["model", "option", "request"])
def test_without_reuse_each_computes_the_prompt(reuse: str) -> None:
    driver = driver_of(NOTHING if reuse == "model" else PARTIAL_PAGES, pages=40, slots=4)
    if reuse == "option":
        driver = Driver(driver.model, SchedulerOptions(prefix_reuse=False))
    asked = [replace(one, prefix_reuse=reuse != "request") for one in choices(3)]
    driver.submit(*asked)
    driver.drain()
    assert prefilled(driver) == 3 * len(PROMPT)
    for one in asked:
        assert_as_alone(driver, one)


@pytest.mark.parametrize("turns", range(12))
def test_a_leader_that_is_cancelled_leaves_the_others_going(turns: int) -> None:
    driver = driver_of(PARTIAL_PAGES, pages=40, slots=4)
    asked = choices(3, limit=4)
    driver.submit(*asked)
    for _ in range(turns):
        driver.turn()
    ended = driver.got[1].ended
    driver.cancel(1)
    driver.drain()
    assert driver.got[1].finish is (Finish.LIMIT if ended else Finish.CANCELLED)
    for one in asked[1:]:
        assert_as_alone(driver, one)


@pytest.mark.parametrize("turns", range(6))
def test_a_sibling_can_be_cancelled_wherever_it_waits(turns: int) -> None:
    driver = driver_of(PARTIAL_PAGES, pages=40, slots=2)
    asked = choices(4, limit=4)
    driver.submit(*asked)
    for _ in range(turns):
        driver.turn()
    driver.cancel(3)
    driver.drain()
    assert driver.got[3].finish is Finish.CANCELLED
    for one in (asked[0], asked[1], asked[3]):
        assert_as_alone(driver, one)
    assert driver.scheduler.idle


def test_a_leader_that_fails_leaves_the_others_going() -> None:
    driver = driver_of(PARTIAL_PAGES, pages=40, slots=4)
    asked = choices(3)
    driver.submit(*asked)

    def tamper(completion: Completion) -> Completion:
        return completion._replace(lanes=tuple(x._replace(consumed=99) for x in completion.lanes))

    driver.model.tamper = tamper
    while driver.got[1].failure is None:
        driver.turn()
    driver.model.tamper = lambda completion: completion
    driver.drain()
    for one in asked[1:]:
        assert_as_alone(driver, one)


def test_a_failure_of_the_device_fails_them_all() -> None:
    driver = driver_of(PARTIAL_PAGES, pages=40, slots=4)
    driver.submit(*choices(3))
    driver.turn()
    driver.take(driver.scheduler.fail("gone"))
    assert all(driver.got[n].failure == "gone" for n in (1, 2, 3))
    assert driver.scheduler.idle


def test_others_are_not_held_up_by_siblings_that_wait() -> None:
    """While the leader's long prompt is computed, somebody else is admitted."""
    driver = driver_of(PARTIAL_PAGES, pages=40, slots=3)
    asked = choices(3)
    driver = Driver(driver.model, SchedulerOptions(prefill_chunk_tokens=2))
    other = request(9, 3, 2)
    driver.submit(*asked, other)
    assert driver.scheduler.waiting == 4
    driver.turn()
    assert driver.scheduler.running == 2
    assert driver.scheduler.waiting == 2
    driver.drain()
    for one in (*asked, other):
        assert_as_alone(driver, one)


def test_siblings_count_with_their_leader() -> None:
    options = SchedulerOptions(queue_capacity=1)
    driver = Driver(FakeModel(geometry(slots=1)), options)
    driver.submit(*choices(5, limit=3))
    with pytest.raises(AdmissionError, match="2 requests run or wait already"):
        driver.submit(request(9, limit=2), request(10, limit=2))
    # Who names a request that isn't there is nobody's sibling.
    with pytest.raises(AdmissionError, match="run or wait already"):
        driver.submit(request(11, limit=2, sibling_of=77))
    driver.drain()
    assert all(driver.got[n].finish is Finish.LIMIT for n in (1, 2, 3, 4, 5, 9))


def test_another_prompt_is_nobody_s_sibling() -> None:
    driver = driver_of(PARTIAL_PAGES, pages=40, slots=2)
    one, other = request(1, PROMPT, 3), request(2, 9, 3, sibling_of=1)
    driver.submit(one, other)
    driver.turn()
    assert driver.scheduler.running == 2
    driver.drain()
    assert_as_alone(driver, one)
    assert_as_alone(driver, other)


def test_a_sibling_takes_no_slot_from_who_came_while_it_waited_for_its_prompt() -> None:
    """It precedes them, but is no more urgent: the next slot is its."""
    driver = driver_of(PARTIAL_PAGES, slots=3, pages=40)
    asked = choices(4, limit=12)
    later = [request(n, limit=12) for n in (8, 9)]
    driver.submit(*asked, *later)
    driver.drain()
    assert driver.scheduler.counters.preemptions == 0
    for one in (*asked, *later):
        assert_as_alone(driver, one)


def test_a_more_urgent_sibling_takes_one() -> None:
    driver = driver_of(PARTIAL_PAGES, slots=2, pages=40)
    asked = [replace(one, priority=-1) for one in choices(2, limit=12)]
    driver.submit(*asked, request(9, limit=12))
    driver.drain()
    assert driver.scheduler.counters.preemptions == 1
    for one in asked:
        assert_as_alone(driver, one)
