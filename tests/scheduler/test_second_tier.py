"""The door to a second tier: what it hears, and what it brings back before an admission."""

from __future__ import annotations

import pytest

from helios.scheduler import SchedulerOptions
from helios.scheduler.second_tier import NoSecondTier, SecondTier
from tests.scheduler.driving import Driver, request
from tests.scheduler.fake_tier import FakeTier
from tests.scheduler.histories import (
    PAGES,
    PARTIAL_PAGES,
    REUSING,
    ROWS,
    History,
    assert_as_alone,
    driver_of,
    prefilled,
)

PROMPT = tuple((5 * i + 2) % 23 for i in range(14))


def tier_of(driver: Driver) -> FakeTier:
    assert driver.tier is not None
    return driver.tier


def forget(driver: Driver) -> None:
    """Evicts everything."""
    cache = driver.scheduler.cache
    rows = [cache.take_row() for _ in range(cache.rows.rows)]
    for row in rows:
        cache.give_back_row(row)
    cache.evict(cache.pages.pages)
    driver.check()


@pytest.mark.clause("CACHE-4")
@pytest.mark.parametrize("delay", [0, 3])
@pytest.mark.parametrize("history", REUSING, ids=str)
def test_what_was_evicted_comes_back(history: History, delay: int) -> None:
    driver = driver_of(history, pages=30, tier_delay=delay)
    driver.submit(request(0, PROMPT, 6))
    driver.drain()
    forget(driver)
    assert driver.scheduler.pages.free == 30
    computed = prefilled(driver)
    again = request(1, PROMPT, 6, seed=5)
    driver.submit(again)
    driver.drain()
    assert_as_alone(driver, again)
    assert driver.got[1].reused >= 12
    assert prefilled(driver) - computed <= 2
    assert tier_of(driver).written >= 1


def test_what_is_in_the_cache_is_not_fetched() -> None:
    driver = driver_of(PAGES, pages=30, tier_delay=2)
    for number in range(3):
        driver.submit(request(number, PROMPT, 6))
        driver.drain()
    assert tier_of(driver).fetches == []


def test_others_go_on_while_content_is_fetched() -> None:
    driver = driver_of(PAGES, pages=30, tier_delay=4)
    driver.submit(request(0, PROMPT, 6))
    driver.drain()
    forget(driver)
    running = request(1, 6, 20)
    driver.submit(running)
    for _ in range(3):
        driver.turn()
    driver.submit(request(2, PROMPT, 6))
    got = len(driver.got[1].tokens)
    while not driver.got[2].tokens:
        driver.turn()
    assert len(driver.got[1].tokens) > got + 4
    driver.drain()
    assert_as_alone(driver, running, request(2, PROMPT, 6))
    assert driver.got[2].reused == 12


def test_nobody_gives_way_while_content_is_fetched() -> None:
    """An urgent request waits for its content, not for the slots and pages of others."""
    driver = driver_of(PAGES, slots=4, pages=30, tier_delay=6)
    driver.submit(request(0, PROMPT, 6))
    driver.drain()
    forget(driver)
    running = [request(1, 6, 20, priority=1), request(2, 6, 20, priority=1)]
    driver.submit(*running)
    for _ in range(4):
        driver.turn()
    urgent = request(3, PROMPT, 6)
    driver.submit(urgent)
    driver.drain()
    assert driver.got[3].reused == 12
    assert driver.scheduler.counters.preemptions == 0
    assert_as_alone(driver, *running, urgent)


def test_a_request_that_is_cancelled_wants_nothing_any_more() -> None:
    driver = driver_of(PAGES, pages=30, tier_delay=50)
    driver.submit(request(0, PROMPT, 6))
    driver.drain()
    forget(driver)
    driver.submit(request(1, PROMPT, 6))
    assert driver.launch() is None
    (fetch,) = tier_of(driver).fetches
    driver.cancel(1)
    assert fetch.cancelled
    assert driver.scheduler.idle


def test_content_without_room_is_left_and_the_request_computed() -> None:
    driver = driver_of(PAGES, slots=2, pages=8, tier_delay=1)
    driver.submit(request(0, PROMPT, 6))
    driver.drain()
    forget(driver)
    running = request(1, 9, 20)  # seven pages in the end
    driver.submit(running)
    while driver.scheduler.pages.free > 1:
        driver.turn()
    late = request(2, PROMPT, 6)
    driver.submit(late)
    driver.drain()
    assert_as_alone(driver, running, late)


def test_a_snapshot_comes_back_with_the_pages_before_it() -> None:
    driver = driver_of(ROWS, pages=30, tier_delay=1)
    driver.submit(request(0, PROMPT, 6))
    driver.drain()
    forget(driver)
    one = request(1, (*PROMPT, *driver.got[0].tokens, 1, 2), 3)
    driver.submit(one)
    launched = driver.drain()
    assert launched[0] == "restore.b1"
    assert driver.got[1].reused == 19
    assert_as_alone(driver, one)


def test_a_reset_reaches_the_tier() -> None:
    driver = driver_of(PARTIAL_PAGES, pages=30, tier_delay=0)
    driver.submit(request(0, PROMPT, 6))
    driver.drain()
    driver.scheduler.reset_cache()
    driver.submit(request(1, PROMPT, 6))
    driver.drain()
    assert driver.got[1].reused == 0


def test_what_is_on_its_way_during_a_reset_never_arrives() -> None:
    driver = driver_of(PAGES, pages=30, tier_delay=3)
    driver.submit(request(0, PROMPT, 6))
    driver.drain()
    forget(driver)
    driver.submit(request(1, PROMPT, 6))
    assert driver.launch() is None
    (fetch,) = tier_of(driver).fetches
    driver.scheduler.reset_cache()
    assert fetch.cancelled
    driver.drain()
    assert driver.got[1].reused == 0
    assert tier_of(driver).written == 0
    assert_as_alone(driver, request(1, PROMPT, 6))


def test_without_reuse_the_tier_hears_and_brings_nothing() -> None:
    driver = driver_of(PAGES, SchedulerOptions(prefix_reuse=False), pages=30, tier_delay=0)
    for number in range(2):
        driver.submit(request(number, PROMPT, 6))
        driver.drain()
    assert not tier_of(driver).pages
    assert not tier_of(driver).fetches


def test_no_second_tier_is_one() -> None:
    tier: SecondTier = NoSecondTier()
    driver = Driver(tier=None)
    driver.scheduler.cache.listen(tier)
    assert tier.find((1, 2, 3), 0, 2) is None
    tier.reset()
