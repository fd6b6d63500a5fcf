"""Who gives way when pages or slots are short, what survives it, and how they come back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helios.scheduler import Finish, SchedulerOptions
from tests.scheduler.driving import Driver, request
from tests.scheduler.histories import (
    HISTORIES,
    NOTHING,
    PAGES,
    PARTIAL_PAGES,
    ROWS,
    History,
    assert_as_alone,
    driver_of,
    prefilled,
)


def drain_preempting(driver: Driver, *requests: object) -> list[str]:
    """Drains; each turn checks that the books agree."""
    launched = driver.drain()
    assert driver.scheduler.counters.preemptions >= 1
    return launched


@pytest.mark.clause("CACHE-4")
@pytest.mark.parametrize("frames", [1, 2])
@pytest.mark.parametrize("history", HISTORIES, ids=str)
def test_who_gave_way_goes_on_exactly(history: History, frames: int) -> None:
    rules = replace(history.rules, window_tokens=0)
    kind = replace(history.kind, window=0)
    roomless = History(history.name, rules, kind)
    driver = driver_of(roomless, SchedulerOptions(frames_in_flight=frames), pages=8)
    requests = [request(i, prompt=4, limit=24) for i in (1, 2, 3)]
    driver.submit(*requests)
    drain_preempting(driver)
    assert_as_alone(driver, *requests)


@pytest.mark.clause("CACHE-4")
def test_pages_that_nobody_needed_are_there_at_readmission() -> None:
    """Two requests of up to 7 pages in 8: the younger one gives way, its pages are evicted one by
    one from the end, and the rest of them is reused."""
    with_reuse, without = driver_of(PAGES, pages=8), driver_of(NOTHING, pages=8)
    for driver in (with_reuse, without):
        requests = [request(1, prompt=12, limit=9), request(2, prompt=12, limit=9)]
        driver.submit(*requests)
        drain_preempting(driver)
        assert_as_alone(driver, *requests)
        counters = driver.scheduler.counters
        assert (counters.preemptions > 0, counters.preemptions_by_snapshot) == (True, 0)
    assert prefilled(without) > 24
    assert prefilled(with_reuse) < prefilled(without)


@pytest.mark.clause("CACHE-7")
@pytest.mark.parametrize("history", [PARTIAL_PAGES, ROWS], ids=str)
def test_a_snapshot_at_preemption_lets_the_request_resume(history: History) -> None:
    driver = driver_of(history, slots=1, pages=30)
    low = request(1, prompt=5, limit=20, priority=1)
    driver.submit(low)
    while len(driver.got[1].tokens) < 6:
        driver.turn()
    computed = prefilled(driver)
    urgent = request(2, prompt=3, limit=2, priority=-1)
    driver.submit(urgent)
    launched = driver.drain()
    assert driver.scheduler.counters.preemptions == 1
    assert driver.scheduler.counters.preemptions_by_snapshot == 1
    assert_as_alone(driver, low, urgent)
    assert driver.got[2].finish is Finish.LIMIT
    assert launched.index("resume.b1") > launched.index("snapshot.b1")
    assert prefilled(driver) == computed + 3, "nothing was computed again"


def test_without_snapshots_the_part_of_a_page_is_computed_again() -> None:
    driver = driver_of(PAGES, slots=1, pages=30)
    driver.submit(request(1, prompt=5, limit=20, priority=1))
    while len(driver.got[1].tokens) < 6:
        driver.turn()
    computed, reached = prefilled(driver), 5 + len(driver.got[1].tokens)
    driver.submit(request(2, prompt=3, limit=2))
    driver.drain()
    again = prefilled(driver) - computed - 3
    assert 0 < again <= reached + 2 - 8


def test_nobody_gives_way_while_cached_pages_can_be_evicted() -> None:
    driver = driver_of(PAGES, pages=12)
    driver.submit(request(1, prompt=20, limit=4))
    driver.drain()
    assert driver.scheduler.pages.free == 12 - 5
    requests = [request(i, prompt=4, limit=13) for i in (2, 3, 4)]
    driver.submit(*requests)
    driver.drain()
    assert driver.scheduler.counters.preemptions == 0
    assert driver.scheduler.cache.counters.evicted_pages > 0
    assert_as_alone(driver, *requests)


def test_the_least_urgent_gives_way_first_however_early_it_came() -> None:
    driver = driver_of(PAGES, pages=8)
    early = request(1, prompt=4, limit=20, priority=2)
    driver.submit(early)
    driver.turn()
    others = [request(i, prompt=4, limit=20) for i in (2, 3)]
    driver.submit(*others)
    ended: list[int] = []
    while not driver.scheduler.idle:
        driver.turn()
        ended += [i for i in (1, 2, 3) if driver.got[i].ended and i not in ended]
    assert ended == [2, 3, 1]
    assert_as_alone(driver, early, *others)


@pytest.mark.clause("CACHE-8")
@pytest.mark.parametrize("history", [PAGES, PARTIAL_PAGES, ROWS], ids=str)
def test_who_gives_way_holds_everything_to_the_last_fence(history: History) -> None:
    driver = driver_of(history, slots=1, pages=30)
    driver.submit(request(1, prompt=5, limit=20, priority=1))
    while driver.scheduler.frames_in_flight < 2 or len(driver.got[1].tokens) < 6:
        if not driver.scheduler.can_plan() or driver.launch() is None:
            driver.complete()
    driver.submit(request(2, prompt=3, limit=2))
    (resident,) = driver.scheduler._residency.residents
    pages = list(resident.pages)
    driver.complete()  # a frame is free: planning makes way
    driver.launch()
    assert driver.scheduler.counters.preemptions == 1
    while resident in driver.scheduler._residency.residents:
        assert driver.scheduler.slots.free == 0
        assert not set(pages) & set(driver.scheduler.pages._free)
        assert driver.scheduler.frames_in_flight
        driver.complete()
    driver.drain()
    assert_as_alone(driver, request(1, 5, 20, priority=1), request(2, 3, 2))


def test_a_request_alone_with_pages_that_are_published_twice_shares_them() -> None:
    """Two requests computed the same prompt; one ended. What the other one needs beside the
    published copy that it holds is more than there is, until it begins again and shares it."""
    prompt = tuple(range(12))
    driver = driver_of(PAGES, pages=8)
    ends, goes_on = request(1, prompt, 2), request(2, prompt, 16)
    driver.submit(ends, goes_on)
    driver.drain()
    assert_as_alone(driver, ends, goes_on)
    assert driver.scheduler.counters.preemptions == 1


def test_cancelled_while_its_snapshot_is_due_or_in_flight() -> None:
    for launches in range(4):
        driver = driver_of(PARTIAL_PAGES, SchedulerOptions(frames_in_flight=1), slots=1, pages=30)
        driver.submit(request(1, prompt=5, limit=20, priority=1))
        while len(driver.got[1].tokens) < 5:
            driver.turn()
        driver.submit(request(2, prompt=3, limit=2))
        for _ in range(launches):
            if not driver.scheduler.can_plan() or driver.launch() is None:
                driver.complete()
        driver.cancel(1)
        driver.drain()
        assert driver.got[1].finish is Finish.CANCELLED
        assert_as_alone(driver, request(2, prompt=3, limit=2))
        assert driver.scheduler.cache.rows.free + driver.scheduler.cache.evictable_rows == 8


def test_a_page_that_a_resident_needs_at_once_admits_nobody() -> None:
    """Who was admitted with it would be preempted in the same turn, and admitted again in the
    next."""
    driver = driver_of(
        PARTIAL_PAGES, SchedulerOptions(queue_capacity=8), slots=3, pages=7, context=28
    )
    shapes = [(3, 10), (5, 8), (9, 3), (3, 3), (12, 8)]
    requests = [request(i, prompt, limit) for i, (prompt, limit) in enumerate(shapes, 1)]
    driver.submit(*requests)
    rounds = 0
    while not driver.scheduler.idle:
        rounds += len(driver.turn())
        assert rounds < 120
    assert_as_alone(driver, *requests)
