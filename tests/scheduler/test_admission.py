"""What the scheduler refuses at once, what waits, and what preemption does."""

from __future__ import annotations

import pytest

from helios.errors import AdmissionError
from helios.scheduler import Finish, Request, SchedulerOptions
from tests.scheduler.driving import Driver, request
from tests.scheduler.fake_model import FakeModel, alone, geometry


@pytest.mark.clause("BOOT-6")
def test_what_can_never_fit_is_refused_at_once() -> None:
    driver = Driver(FakeModel(geometry(pages=5, page_tokens=4, context=40)))
    driver.submit(request(1, prompt=16, limit=5))  # 20 stored tokens, 5 pages
    with pytest.raises(AdmissionError, match="6 pages of a cache of 5"):
        driver.submit(request(2, prompt=17, limit=5))
    with pytest.raises(AdmissionError, match="41 tokens of a context of 40"):
        driver.submit(request(2, prompt=1, limit=40))
    driver.drain()
    assert driver.got[1].finish is Finish.LIMIT
    assert driver.scheduler.counters.rejected == 2


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (request(2, prompt=()), "empty"),
        (request(2, prompt=(1, 23)), r"outside \[0, 23\)"),
        (request(2, prompt=(-1,)), r"outside \[0, 23\)"),
        (request(2, limit=0), "output limit"),
        (request(2, eos_ids=tuple(range(17))), "17 EOS ids"),
        (request(1), "live request has this id"),
    ],
)
def test_a_malformed_request_is_refused_and_harms_nobody(bad: Request, says: str) -> None:
    driver = Driver()
    driver.submit(request(1))
    with pytest.raises(AdmissionError, match=says):
        driver.scheduler.submit(bad)
    driver.drain()
    assert driver.got[1].tokens == alone(request(1))[0]


@pytest.mark.clause("HTTP-2")
def test_the_queue_holds_its_capacity_however_short_pages_are() -> None:
    """A burst gets its slots while it comes; whom pages are missing for waits, and counts."""
    driver = Driver(
        FakeModel(geometry(slots=3, pages=6, page_tokens=4)), SchedulerOptions(queue_capacity=2)
    )
    scheduler = driver.scheduler
    for i in (1, 2, 3):
        driver.submit(request(i, prompt=12, limit=4))
    assert (scheduler.running, scheduler.waiting) == (1, 2)
    assert not scheduler.has_room()
    with pytest.raises(AdmissionError, match="2 requests wait for a slot already"):
        driver.submit(request(4))
    driver.drain()
    assert [i for i, got in driver.got.items() if got.finish is Finish.LIMIT] == [1, 2, 3]


def test_a_preempted_request_takes_no_place_in_the_queue() -> None:
    """It has been admitted before; whoever has just come may wait beside it."""
    driver = Driver(
        FakeModel(geometry(slots=2, pages=7, page_tokens=4)), SchedulerOptions(queue_capacity=1)
    )
    scheduler = driver.scheduler
    driver.submit(*(request(i, prompt=4, limit=20) for i in (1, 2)))
    while not (scheduler.counters.preemptions and scheduler.waiting):
        driver.turn()
    assert scheduler.has_room()
    driver.submit(request(3))
    assert (scheduler.waiting, scheduler.has_room()) == (2, False)
    driver.drain()
    assert all(got.finish is Finish.LIMIT for got in driver.got.values())


def test_a_full_queue_refuses() -> None:
    driver = Driver(FakeModel(geometry(slots=3)), SchedulerOptions(queue_capacity=2))
    driver.submit(*(request(i) for i in range(5)))  # before any of them can have a slot
    with pytest.raises(AdmissionError, match="5 requests run or wait already"):
        driver.submit(request(5))
    driver.turn()
    with pytest.raises(AdmissionError):
        driver.submit(request(5))
    driver.cancel(4)
    driver.submit(request(5))
    driver.drain()
    assert [i for i, got in driver.got.items() if got.finish is Finish.LIMIT] == [0, 1, 2, 3, 5]


def test_a_place_in_the_queue_is_free_once_its_request_has_a_slot() -> None:
    """Not at the last event of who ran before, which holds its slot to its fence."""
    driver = Driver(FakeModel(geometry(slots=1)), SchedulerOptions(queue_capacity=1))
    driver.submit(request(1, limit=20))
    assert driver.scheduler.has_room()
    driver.submit(request(2))
    driver.turn()
    assert driver.scheduler.frames_in_flight == 1
    driver.cancel(1)
    assert driver.scheduler.slots.free == 0
    assert not driver.scheduler.has_room()
    with pytest.raises(AdmissionError, match="1 requests wait for a slot already"):
        driver.scheduler.submit(request(3))
    driver.complete()
    driver.submit(request(3))
    driver.drain()
    assert driver.got[2].tokens == alone(request(2))[0]
    assert driver.got[3].tokens == alone(request(3))[0]


def test_an_id_may_be_used_again_after_its_request_ended() -> None:
    driver = Driver()
    driver.submit(request(1))
    driver.drain()
    driver.submit(request(1))
    driver.drain()
    assert driver.got[1].tokens == alone(request(1))[0]


def test_a_temporary_page_shortage_waits() -> None:
    driver = Driver(FakeModel(geometry(pages=6, page_tokens=4)))
    driver.submit(request(1, prompt=12, limit=4), request(2, prompt=12, limit=4))
    driver.turn()
    assert (driver.scheduler.running, driver.scheduler.waiting) == (1, 1)
    driver.drain()
    assert driver.scheduler.counters.preemptions == 0
    for i in (1, 2):
        assert driver.got[i].tokens == alone(request(i, prompt=12, limit=4))[0]


def test_pages_are_assigned_as_rounds_need_them() -> None:
    driver = Driver(FakeModel(geometry(pages=12, page_tokens=4)))
    driver.submit(request(1, prompt=4, limit=20))
    driver.turn()
    assert driver.scheduler.pages.free == 11
    driver.turn()
    driver.turn()
    assert driver.scheduler.pages.free == 10


@pytest.mark.parametrize("frames", [1, 2])
def test_the_youngest_is_preempted_and_continues_exactly(frames: int) -> None:
    driver = Driver(
        FakeModel(geometry(pages=8, page_tokens=4)), SchedulerOptions(frames_in_flight=frames)
    )
    requests = [request(i, prompt=4, limit=24) for i in (1, 2, 3)]
    driver.submit(*requests)
    driver.drain()
    assert driver.scheduler.counters.preemptions >= 1
    for one in requests:
        tokens, logprobs, finish = alone(one)
        got = driver.got[one.request_id]
        assert (got.tokens, got.logprobs, got.finish) == (tokens, logprobs, finish)


def test_the_oldest_is_never_preempted() -> None:
    driver = Driver(FakeModel(geometry(pages=7, page_tokens=4)))
    driver.submit(request(1, prompt=4, limit=24), request(2, prompt=4, limit=24))
    ended: list[int] = []
    while not driver.scheduler.idle:
        driver.turn()
        ended += [i for i in (1, 2) if driver.got[i].ended and i not in ended]
    assert ended == [1, 2]
    prefilled = driver.scheduler.counters.prefilled_tokens
    assert prefilled > 8, "the younger one was prefilled again"


def test_cancelling_a_waiting_preempted_and_running_request() -> None:
    driver = Driver(FakeModel(geometry(slots=2, pages=7, page_tokens=4)))
    driver.submit(*(request(i, prompt=4, limit=20) for i in (1, 2, 3)))
    while not driver.scheduler.counters.preemptions:
        driver.turn()
    driver.cancel(2)
    driver.cancel(3)
    driver.cancel(3)
    driver.cancel(99)
    assert driver.got[2].finish is driver.got[3].finish is Finish.CANCELLED
    driver.drain()
    assert driver.got[1].tokens == alone(request(1, prompt=4, limit=20))[0]
    assert driver.scheduler.counters.finished[Finish.CANCELLED] == 2


def test_a_cancelled_request_holds_its_pages_to_its_fence() -> None:
    driver = Driver()
    driver.submit(request(1, prompt=4, limit=9))
    driver.launch()
    driver.launch()
    held = driver.scheduler.pages.pages - driver.scheduler.pages.free
    assert held == 1
    driver.cancel(1)
    assert driver.scheduler.pages.free == driver.scheduler.pages.pages - held
    driver.complete()
    assert driver.scheduler.running == 1
    driver.complete()
    assert driver.scheduler.idle
    assert driver.got[1].tokens == []
