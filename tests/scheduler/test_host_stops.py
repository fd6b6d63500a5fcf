"""A host that ends requests: what is dropped, what stays, and what nobody else notices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.scheduler import Finish, Request, SchedulerOptions
from tests.scheduler.driving import Driver, request
from tests.scheduler.fake_model import FakeModel, alone, geometry
from tests.scheduler.histories import PAGES, REUSING, History, driver_of
from tests.scheduler.test_publication import published

PROMPT = tuple((5 * i + 2) % 23 for i in range(14))
Decide = Callable[[int, int], bool]  # of a request's id and what it has emitted


class StoppingDriver(Driver):
    """Stops whom `decides` names, after each completion, as the worker does."""

    decides: Decide = staticmethod(lambda request_id, emitted: False)

    def complete(self) -> None:
        before = {request_id: len(got.tokens) for request_id, got in self.got.items()}
        super().complete()
        for request_id, got in self.got.items():
            new = len(got.tokens) > before[request_id]
            if new and self.decides(request_id, len(got.tokens)):
                self.scheduler.stop(request_id)
                got.finish = Finish.STOP
                self.check()


def stopping(request_id: int, prompt: int | tuple[int, ...] = 5, limit: int = 9) -> Request:
    return replace(request(request_id, prompt, limit), host_stops=True)


def stopping_driver(decides: Decide) -> StoppingDriver:
    driver = StoppingDriver(FakeModel(geometry()))
    driver.decides = decides
    return driver


def over(history: History, decides: Decide) -> StoppingDriver:
    """A driver of a model with such a history."""
    driver = StoppingDriver(driver_of(history, pages=30).model)
    driver.decides = decides
    return driver


@pytest.mark.clause("STOP-4", "STOP-6")
@pytest.mark.parametrize("at", [1, 2, 5])
def test_no_round_follows_a_stop_and_nothing_is_kept(at: int) -> None:
    driver = stopping_driver(lambda _, emitted: emitted == at)
    one = stopping(1, 3, limit=9)
    driver.submit(one)
    while not driver.got[1].ended:
        driver.turn()
    rounds = len(driver.model.lanes_submitted)
    assert driver.drain() == []
    assert len(driver.model.lanes_submitted) == rounds
    assert driver.got[1].tokens == alone(one)[0][:at]
    assert driver.scheduler.counters.finished[Finish.STOP] == 1
    assert driver.scheduler.counters.empty_lanes == 0
    assert driver.scheduler.slots.free == driver.scheduler.slots.slots


@pytest.mark.clause("STOP-5", "STOP-6")
@pytest.mark.parametrize("at", [1, 4, 9])
@pytest.mark.parametrize("history", REUSING, ids=str)
def test_what_a_stopped_request_has_not_published_is_dropped(history: History, at: int) -> None:
    driver = over(history, lambda _, emitted: emitted == at)
    driver.submit(stopping(1, PROMPT, 9))
    seen = set()
    while not driver.got[1].ended:
        seen.add(published(driver))
        driver.turn()
    # Nothing is published by the end that wasn't before the last token.
    before = max(seen)
    driver.drain()
    assert published(driver) == before
    if at == 1 and history.rules.starts_at_pages:
        assert before == (0, 0), "the prompt waits for what is decided about the first token"
    unstopped = over(history, lambda _, emitted: False)
    unstopped.submit(stopping(1, PROMPT, 9))
    unstopped.drain()
    assert published(unstopped) > before


@pytest.mark.clause("STOP-5")
@pytest.mark.parametrize("history", REUSING, ids=str)
def test_what_was_published_before_stays_for_others(history: History) -> None:
    driver = over(history, lambda request_id, emitted: request_id == 2 and emitted == 3)
    driver.submit(request(1, PROMPT, 6))
    driver.drain()
    before = {id(node): node.tokens for node in driver.scheduler.cache.store.tree}
    counts = published(driver)
    driver.submit(stopping(2, PROMPT, 9))
    driver.drain()
    assert driver.got[2].finish is Finish.STOP
    assert driver.got[2].reused > 0
    after = {id(node): node.tokens for node in driver.scheduler.cache.store.tree}
    assert before.items() <= after.items()
    assert published(driver) >= counts
    driver.submit(replace(request(3, PROMPT, 6), sampling=request(1).sampling))
    driver.drain()
    assert driver.got[3].reused >= driver.got[2].reused
    assert driver.got[3].tokens == driver.got[1].tokens


@pytest.mark.clause("STOP-5")
def test_a_stop_at_the_output_limit_is_a_stop() -> None:
    driver = over(PAGES, lambda _, emitted: emitted == 4)
    driver.submit(stopping(1, PROMPT, limit=4))
    driver.drain()
    finished = driver.scheduler.counters.finished
    assert (finished[Finish.STOP], finished[Finish.LIMIT]) == (1, 0)
    undisturbed = over(PAGES, lambda _, emitted: False)
    undisturbed.submit(stopping(1, PROMPT, limit=4))
    undisturbed.drain()
    assert undisturbed.got[1].finish is Finish.LIMIT
    assert published(driver) < published(undisturbed)


def test_who_is_not_stopped_ends_and_publishes_as_without_host_stops() -> None:
    counts = []
    for host_stops in (False, True):
        driver = over(PAGES, lambda _, emitted: False)
        one = replace(request(1, PROMPT, 6), host_stops=host_stops)
        driver.submit(one)
        driver.drain()
        assert (driver.got[1].tokens, driver.got[1].finish) == (alone(one)[0], Finish.LIMIT)
        counts.append(published(driver))
    assert counts[0] == counts[1]


def test_a_request_may_be_cancelled_or_failed_before_its_decision() -> None:
    driver = stopping_driver(lambda _, emitted: False)
    driver.submit(stopping(1, 3), stopping(2, 3))
    while not (driver.got[1].tokens and driver.got[2].tokens):
        driver.turn()
    driver.cancel(1)
    driver.take(driver.scheduler.fail("the device is gone"))
    assert driver.got[1].finish is Finish.CANCELLED
    assert driver.got[2].failure == "the device is gone"
    assert driver.scheduler.idle


def test_only_who_has_host_stops_can_be_stopped() -> None:
    driver = stopping_driver(lambda _, emitted: False)
    driver.submit(request(1, 3, 9))
    while not driver.got[1].tokens:
        driver.turn()
    with pytest.raises(AssertionError):
        driver.scheduler.stop(1)


@given(
    shapes=st.lists(
        st.tuples(st.integers(1, 12), st.integers(1, 10), st.integers(0, 11), st.booleans()),
        min_size=1,
        max_size=6,
    ),
    pages=st.sampled_from([6, 9, 40]),
    frames=st.sampled_from([1, 2]),
)
@settings(deadline=None, max_examples=60)
def test_others_get_what_they_get_alone_and_nothing_is_lost(
    shapes: list[tuple[int, int, int, bool]], pages: int, frames: int
) -> None:
    """With few pages requests are preempted too; `stop_at` 0 never stops."""
    stop_at = {i: at for i, (_, _, at, host_stops) in enumerate(shapes) if host_stops}
    driver = StoppingDriver(
        FakeModel(geometry(pages=pages)), SchedulerOptions(frames_in_flight=frames)
    )
    driver.decides = lambda request_id, emitted: emitted == stop_at.get(request_id)
    requests = [
        replace(request(i, prompt, limit), host_stops=host_stops)
        for i, (prompt, limit, _, host_stops) in enumerate(shapes)
    ]
    driver.submit(*requests)
    driver.drain()
    for one in requests:
        tokens, _, finish = alone(one)
        at = stop_at.get(one.request_id, 0)
        if 0 < at <= len(tokens):
            tokens, finish = tokens[:at], Finish.STOP
        assert (driver.got[one.request_id].tokens, driver.got[one.request_id].finish) == (
            tokens,
            finish,
        )
    scheduler = driver.scheduler
    assert scheduler.slots.free == scheduler.slots.slots
    assert scheduler.pages.free + scheduler.cache.evictable_pages == pages
