"""When what a request has computed becomes visible to others: after its fence, or never."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helios.runtime.rounds import Completion
from helios.scheduler import Finish, SchedulerOptions
from tests.scheduler.driving import Driver, request
from tests.scheduler.fake_model import alone
from tests.scheduler.histories import (
    PAGES,
    PARTIAL_PAGES,
    REUSING,
    ROWS,
    WINDOW,
    History,
    assert_as_alone,
    driver_of,
)

PROMPT = tuple((5 * i + 2) % 23 for i in range(14))
Tamper = Callable[[Completion], Completion]


def published(driver: Driver) -> tuple[int, int]:
    """(pages, snapshots) in the tree."""
    counters = driver.scheduler.cache.counters
    return counters.published_pages, counters.published_snapshots


def launch_until(driver: Driver, program: str) -> None:
    """Launches and completes until the program has been launched."""
    while True:
        if driver.scheduler.can_plan() and (name := driver.launch()) is not None:
            if name.startswith(program):
                return
        else:
            driver.complete()


@pytest.mark.clause("CACHE-8")
@pytest.mark.parametrize("history", REUSING, ids=str)
def test_nothing_is_published_before_its_fence(history: History) -> None:
    driver = driver_of(history, SchedulerOptions(frames_in_flight=2), pages=30)
    driver.submit(request(0, PROMPT, 6))
    launch_until(driver, "prefill")
    driver.submit(request(1, PROMPT, 6, seed=8))
    driver.model.run_next()
    assert published(driver) == (0, 0)
    driver.drain()
    assert driver.got[1].reused == 0
    assert_as_alone(driver, request(0, PROMPT, 6), request(1, PROMPT, 6, seed=8))


@pytest.mark.clause("CACHE-8")
def test_a_prompt_is_published_at_its_last_chunks_fence_and_no_sooner() -> None:
    driver = driver_of(PAGES, SchedulerOptions(prefill_chunk_tokens=4), pages=30)
    driver.submit(request(0, PROMPT, 9))
    assert [driver.launch(), driver.launch()] == ["initialize.b1", "prefill.p4"]
    for chunk in range(4):
        driver.complete()  # what comes before the chunk
        assert published(driver) == (0, 0), f"before chunk {chunk}"
        if chunk < 3:
            assert driver.launch() == "prefill.p4"
    driver.complete()
    assert published(driver) == (3, 0)
    driver.submit(request(1, PROMPT, 2))
    driver.drain()
    assert driver.got[1].reused == 12


@pytest.mark.clause("CACHE-8")
@pytest.mark.parametrize("history", [PARTIAL_PAGES, ROWS, WINDOW], ids=str)
def test_a_snapshot_is_published_at_its_own_fence(history: History) -> None:
    driver = driver_of(history, SchedulerOptions(frames_in_flight=1), pages=30)
    driver.submit(request(0, PROMPT, 6))
    launch_until(driver, "snapshot")
    driver.model.run_next()
    assert published(driver)[1] == 0
    driver.complete()
    assert published(driver)[1] == 1


@pytest.mark.parametrize("eos", [False, True])
def test_the_end_of_a_request_is_published_by_limit_or_eos(eos: bool) -> None:
    driver = driver_of(PARTIAL_PAGES, pages=30)
    tokens = alone(request(0, PROMPT, 20))[0]
    length = next(i for i in range(3, 20) if tokens[i] not in tokens[:i] and (13 + i) % 4)
    one = request(0, PROMPT, length + 1)
    if eos:
        one = request(0, PROMPT, 20, eos_ids=(tokens[length],))
    driver.submit(one)
    driver.drain()
    assert driver.got[0].finish is (Finish.EOS if eos else Finish.LIMIT)
    assert driver.scheduler.counters.empty_lanes == eos
    driver.submit(request(1, (*PROMPT, *tokens[: length + 1], 2), 2))
    driver.drain()
    assert driver.got[1].reused == 14 + length, "all that was consumed"


@pytest.mark.clause("CACHE-8")
@pytest.mark.parametrize("history", REUSING, ids=str)
def test_a_request_cancelled_in_its_prompt_leaves_nothing(history: History) -> None:
    driver = driver_of(history, SchedulerOptions(prefill_chunk_tokens=8), pages=30)
    driver.submit(request(0, PROMPT, 6))
    launch_until(driver, "prefill")
    launch_until(driver, "prefill")
    driver.cancel(0)
    driver.drain()
    assert published(driver) == (0, 0)
    assert driver.scheduler.pages.free == 30
    assert driver.scheduler.cache.rows.free == driver.scheduler.cache.rows.rows


@pytest.mark.clause("CACHE-8")
@pytest.mark.parametrize("history", REUSING, ids=str)
def test_a_request_cancelled_later_leaves_its_prompt_alone(history: History) -> None:
    driver = driver_of(history, pages=30)
    driver.submit(request(0, PROMPT, 20))
    while len(driver.got[0].tokens) < 9:
        driver.turn()
    before = published(driver)
    driver.cancel(0)
    driver.drain()
    assert published(driver) == before
    driver.submit(request(1, (*PROMPT, *driver.got[0].tokens, 1), 2))
    driver.drain()
    assert driver.got[1].reused == (13 if history.rules.restores else 12)


@pytest.mark.clause("CACHE-8")
@pytest.mark.parametrize("kind", ["lane", "record"])
@pytest.mark.parametrize(
    ("history", "program"),
    [
        *(
            (history, program)
            for history in (PAGES, PARTIAL_PAGES, ROWS)
            for program in ("initialize", "prefill")
        ),
        (PARTIAL_PAGES, "snapshot"),
        (ROWS, "snapshot"),
    ],
    ids=str,
)
def test_a_fault_publishes_nothing(history: History, program: str, kind: str) -> None:
    """Whichever of the prompt's rounds comes back wrong, what it wrote is never reused."""

    def tamper(completion: Completion) -> Completion:
        if kind == "record":
            return completion._replace(sequence=completion.sequence + 1)
        lanes = tuple(lane._replace(consumed=lane.consumed + 1) for lane in completion.lanes)
        return completion._replace(lanes=lanes)

    driver = driver_of(history, SchedulerOptions(frames_in_flight=1), pages=30)
    driver.submit(request(0, PROMPT, 6))
    launch_until(driver, program)
    before = published(driver)
    driver.model.tamper = tamper
    driver.complete()
    driver.model.tamper = lambda completion: completion
    has_lanes = program == "prefill"
    failed = kind == "record" or has_lanes
    assert (driver.got[0].failure is not None) == failed
    driver.drain()
    if failed:
        assert published(driver) == before
        cache = driver.scheduler.cache
        assert cache.pages.free + cache.evictable_pages == 30
        assert cache.rows.free + cache.evictable_rows == cache.rows.rows


@pytest.mark.clause("CACHE-8")
@pytest.mark.parametrize("history", REUSING, ids=str)
def test_a_failed_device_publishes_nothing(history: History) -> None:
    driver = driver_of(history, pages=30)
    driver.submit(request(0, PROMPT, 6))
    launch_until(driver, "prefill")
    driver.take(driver.scheduler.fail("it is gone"))
    assert published(driver) == (0, 0)
    assert driver.scheduler.pages.free == 30


@pytest.mark.clause("CACHE-8")
def test_a_prompts_pages_stay_private_to_the_last_fence_of_a_cancelled_request() -> None:
    driver = driver_of(PAGES, pages=30)
    driver.submit(request(0, PROMPT, 6))
    launch_until(driver, "prefill")
    driver.cancel(0)
    assert driver.scheduler.pages.free == 26
    driver.model.run_next()
    assert driver.scheduler.pages.free == 26
    driver.drain()
    assert driver.scheduler.pages.free == 30


def test_what_two_requests_computed_at_once_is_published_once() -> None:
    driver = driver_of(PAGES, pages=30)
    requests = [request(i, PROMPT, 6, seed=i) for i in (0, 1)]
    driver.submit(*requests)
    driver.drain()
    assert_as_alone(driver, *requests)
    counters = driver.scheduler.cache.counters
    # Three pages of the prompt; the fourth is different, since the outputs are.
    assert (counters.published_pages, counters.duplicate_pages) == (5, 3)
    assert driver.scheduler.pages.free == 25


def test_where_no_row_can_be_had_there_is_no_snapshot() -> None:
    driver = driver_of(ROWS, pages=40, rows=1, slots=2)
    driver.submit(request(0, PROMPT, 1))
    driver.drain()
    held = request(1, (*PROMPT, 1, 2), 3)
    other = request(2, PROMPT[::-1], 3)
    driver.submit(held)
    assert driver.launch() == "restore.b1"
    driver.submit(other)
    launched = driver.drain()
    assert driver.got[1].reused == 14
    assert launched[:2] == ["initialize.b1", "prefill.p16"]
    assert_as_alone(driver, held, other)


@pytest.mark.clause("CACHE-7")
@pytest.mark.parametrize("history", [PARTIAL_PAGES, ROWS], ids=str)
def test_a_snapshot_of_a_request_that_ended_before_it_is_dropped(history: History) -> None:
    """A request is preempted while the round is in flight in which it ends: its snapshot was asked
    for where that round and the next one would have led."""
    tokens = alone(request(0, PROMPT, 20), history.kind)[0]
    end = next(i for i in range(3, 18) if tokens[i] not in tokens[:i] and (14 + i) % 4 in (1, 2))
    driver = driver_of(history, pages=30)
    driver.submit(request(0, PROMPT, 20, eos_ids=(tokens[end],)))
    while len(driver.got[0].tokens) < end - 1:
        driver.turn()
    driver.launch()
    (resident,) = driver.scheduler._residency.residents
    assert resident.planned_consumed == 14 + end
    driver.complete()
    driver.launch()  # leads one token beyond the end
    assert resident.planned_consumed == 15 + end
    driver.scheduler._residency.preempt(resident)
    assert resident.due_endpoint == 15 + end
    driver.complete()
    assert driver.got[0].finish is Finish.EOS
    driver.drain()
    driver.submit(request(1, (*PROMPT, *tokens[: end + 1], 3), 2))
    driver.drain()
    assert driver.got[1].reused == 14 + end
