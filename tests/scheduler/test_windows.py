"""Sliding windows: pages before the window come back while the request runs."""

from __future__ import annotations

import pytest

from helios.errors import AdmissionError
from helios.scheduler import SchedulerOptions
from tests.scheduler.driving import request
from tests.scheduler.histories import (
    PAGES,
    WINDOW,
    WINDOW_AND_ROWS,
    WINDOW_OF_PAGES,
    History,
    assert_as_alone,
    driver_of,
)

WINDOWS = (WINDOW, WINDOW_OF_PAGES, WINDOW_AND_ROWS)
ALL = pytest.mark.parametrize("history", WINDOWS, ids=str)


@pytest.mark.clause("CACHE-4")
@ALL
@pytest.mark.parametrize("frames", [1, 2])
def test_a_request_longer_than_the_cache_runs_within_its_window(
    history: History, frames: int
) -> None:
    """60 tokens would be 15 pages; the window and one more page are 4 or 5."""
    driver = driver_of(history, SchedulerOptions(frames_in_flight=frames), pages=6, context=60)
    one = request(1, prompt=25, limit=30)
    driver.submit(one)
    most = 0
    while not driver.scheduler.idle:
        driver.turn()
        cache = driver.scheduler.cache
        most = max(most, cache.pages.pages - cache.pages.free - cache.evictable_pages)
    assert most <= 6
    assert_as_alone(driver, one)
    assert driver.scheduler.counters.preemptions == 0


@ALL
def test_several_of_them_share_a_small_cache(history: History) -> None:
    driver = driver_of(history, pages=14, context=60)
    requests = [request(i, prompt=7 + 5 * i, limit=25) for i in range(1, 5)]
    driver.submit(*requests)
    driver.drain()
    assert_as_alone(driver, *requests)


@pytest.mark.clause("CACHE-8")
@ALL
def test_pages_come_back_after_the_fence_of_the_last_round_that_reads_them(
    history: History,
) -> None:
    driver = driver_of(history, pages=30, context=60)
    driver.submit(request(1, prompt=4, limit=40))
    window = history.rules.window_tokens
    while not driver.scheduler.idle:
        for resident in driver.scheduler._residency.residents:
            starts = [
                lane.start
                for planned in driver.in_flight
                for member, lane in zip(planned.residents, planned.round.lanes, strict=True)
                if member is resident
            ]
            first_read = max(0, min(starts, default=resident.consumed) - window) // 4
            assert resident.first_page <= first_read
            held = range(resident.hold.depth)
            for place in range(first_read, len(resident.pages)):
                assert place in resident.private or place in held
        driver.turn()


@ALL
def test_a_window_that_doesnt_fit_is_refused(history: History) -> None:
    fits = -(-history.rules.window_tokens // 4) + 2
    driver = driver_of(history, pages=fits, context=60)
    one = request(1, prompt=30, limit=20)
    driver.submit(one)
    driver.drain()
    assert_as_alone(driver, one)
    driver = driver_of(history, pages=fits - 1, context=60)
    with pytest.raises(AdmissionError, match=f"pages of a cache of {fits - 1}"):
        driver.submit(one)
    small = request(2, prompt=4, limit=2)
    driver.submit(small)
    driver.drain()
    assert_as_alone(driver, small)


@ALL
def test_the_page_list_keeps_its_places(history: History) -> None:
    """The table on the device has an entry a place, whatever was given back."""
    driver = driver_of(history, pages=30, context=60)
    driver.submit(request(1, prompt=4, limit=40))
    while len(driver.got[1].tokens) < 39:
        driver.turn()
        (resident,) = driver.scheduler._residency.residents
        assert len(resident.pages) * 4 == resident.covered >= resident.planned_consumed
    assert len(resident.private) < len(resident.pages)


@pytest.mark.parametrize("history", [WINDOW, WINDOW_AND_ROWS], ids=str)
def test_the_last_window_of_a_long_prompt_is_reused(history: History) -> None:
    driver = driver_of(history, pages=12, context=60)
    prompt = tuple((3 * i) % 23 for i in range(40))
    first, again = request(1, prompt, 4), request(2, prompt, 4, seed=7)
    driver.submit(first)
    driver.drain()
    driver.submit(again)
    driver.drain()
    assert driver.got[2].reused == 39
    assert_as_alone(driver, first, again)


def test_without_windows_nothing_comes_back_early() -> None:
    driver = driver_of(PAGES, pages=30, context=60)
    driver.submit(request(1, prompt=4, limit=40))
    while len(driver.got[1].tokens) < 30:
        driver.turn()
    (resident,) = driver.scheduler._residency.residents
    assert resident.first_page == 0
