"""Completions that can't be true and devices that fail: who is failed and who isn't."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helios.errors import ExecutionError
from helios.runtime.rounds import (
    Alternatives,
    Completion,
    DeviceFinish,
    LaneCompletion,
    LaneError,
)
from helios.scheduler import Finish
from tests.scheduler.driving import Driver, request
from tests.scheduler.fake_model import alone

Tamper = Callable[[Completion], Completion]


def on_lane(**changes: object) -> Tamper:
    """Changes the answer of the round's first lane."""

    def tamper(completion: Completion) -> Completion:
        if not completion.lanes:
            return completion
        first, *others = completion.lanes
        changed: LaneCompletion = first._replace(**changes)
        return completion._replace(lanes=(changed, *others))

    return tamper


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"error": LaneError.IMPOSSIBLE, "fault": "lane 0 can't be true"}, "can't be true"),
        ({"consumed": 4}, "4 tokens are consumed, not "),
        ({"tokens": (1, 2), "logprobs": (0.0, 0.0)}, "2 tokens were emitted, not 1"),
        ({"tokens": (), "logprobs": ()}, "0 tokens were emitted, not 1"),
        ({"logprobs": ()}, "emitted"),
        ({"tokens": (23,)}, r"token 23 is outside \[0, 23\)"),
        ({"tokens": (-1,)}, "token -1 is outside"),
        ({"finish": DeviceFinish.EOS}, "finish"),
        ({"finish": DeviceFinish.LIMIT}, "finish"),
        ({"error": LaneError.STALE_GENERATION}, "STALE_GENERATION"),
        ({"error": LaneError.ALREADY_FINISHED}, "ALREADY_FINISHED"),
        ({"draft_cursor": 0}, "reserved columns"),
        ({"model_reserved": 0}, "reserved columns"),
        ({"scores": (-0.5,)}, "1 tokens are scored, not 0"),
        ({"alternatives": (Alternatives((1,), (-0.5,)),)}, "alternatives of 1 tokens came"),
    ],
)
@pytest.mark.parametrize("turns", [1, 3])
@pytest.mark.clause("CACHE-6")
def test_a_faulty_lane_fails_its_request_alone(
    turns: int, changes: dict[str, object], says: str
) -> None:
    """In the round of its prompt, and in one that decodes."""
    driver = Driver()
    driver.submit(request(1, prompt=5, limit=6), request(2, prompt=6, limit=6))
    for _ in range(turns):
        driver.turn()
    driver.model.tamper = on_lane(**changes)
    driver.turn()
    driver.model.tamper = lambda completion: completion
    driver.drain()
    assert driver.got[1].failure is not None
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(driver.got[1].failure)
    assert driver.got[1].tokens == alone(request(1, prompt=5, limit=6))[0][: turns - 1]
    assert driver.got[2].tokens == alone(request(2, prompt=6, limit=6))[0]
    assert driver.scheduler.counters.finished[Finish.FAILED] == 1


@pytest.mark.clause("CACHE-6")
def test_every_lane_is_checked_before_any_is_accepted() -> None:
    driver = Driver()
    driver.submit(request(1), request(2))
    driver.turn()

    def tamper(completion: Completion) -> Completion:
        first, second = completion.lanes
        return completion._replace(lanes=(first, second._replace(consumed=0)))

    driver.model.tamper = tamper
    driver.turn()
    assert len(driver.got[1].tokens) == 1
    assert driver.got[2].failure is not None


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (lambda c: c._replace(sequence=c.sequence + 1), "completion 3 came where 2 was due"),
        (lambda c: c._replace(lanes=c.lanes[:1]), "has 1 lanes, not 2"),
        (lambda c: c._replace(lanes=()), "has 0 lanes, not 2"),
        (on_lane(slot=3), "slot 3 generation 1 answered for slot 0"),
        (on_lane(generation=7), "slot 0 generation 7 answered for slot 0 generation 1"),
    ],
)
@pytest.mark.clause("CACHE-6")
def test_a_faulty_record_fails_its_round_and_no_other_request(tamper: Tamper, says: str) -> None:
    driver = Driver()
    driver.submit(request(1), request(2))
    driver.turn()
    driver.submit(request(3))
    driver.model.tamper = tamper
    driver.turn()
    driver.model.tamper = lambda completion: completion
    driver.drain()
    for i in (1, 2):
        failure = driver.got[i].failure
        assert failure is not None
        assert says in failure
    assert driver.got[3].tokens == alone(request(3))[0]


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (lambda c: c._replace(sequence=c.sequence + 1), "was due"),
        (lambda c: c._replace(lanes=c.lanes[:1]), "has 1 lanes, not 2"),
        (lambda c: c._replace(lanes=(*c.lanes, c.lanes[0])), "has 3 lanes, not 2"),
        (lambda c: c._replace(lanes=c.lanes[::-1]), "slot 1 generation 1 answered for slot 0"),
        (on_lane(slot=3), "slot 3 generation 1 answered for slot 0"),
        (on_lane(generation=7), "slot 0 generation 7 answered for slot 0 generation 1"),
    ],
)
@pytest.mark.clause("CACHE-6")
def test_so_it_is_where_every_lane_would_go_on(tamper: Tamper, says: str) -> None:
    driver = Driver()
    driver.submit(request(1, limit=16), request(2, limit=16))
    while min(len(driver.got[i].tokens) for i in (1, 2)) < 2:
        driver.turn()
    driver.model.tamper = tamper
    driver.turn()
    driver.model.tamper = lambda completion: completion
    driver.drain()
    for i in (1, 2):
        failure = driver.got[i].failure
        assert failure is not None
        assert says in failure
        assert driver.got[i].tokens == alone(request(i, limit=16))[0][: len(driver.got[i].tokens)]


def test_a_failed_request_is_not_reported_twice() -> None:
    driver = Driver()
    driver.submit(request(1, limit=9))
    driver.turn()
    driver.model.tamper = on_lane(consumed=99)
    driver.drain()
    assert driver.scheduler.counters.finished[Finish.FAILED] == 1


def test_a_fault_of_a_cancelled_request_is_silent() -> None:
    driver = Driver()
    driver.submit(request(1, limit=9))
    driver.turn()
    driver.cancel(1)
    driver.model.tamper = on_lane(consumed=99)
    driver.drain()
    assert driver.got[1].failure is None
    assert driver.got[1].finish is Finish.CANCELLED


def test_a_failed_device_fails_everything_once_and_takes_no_more() -> None:
    driver = Driver()
    driver.submit(*(request(i, limit=9) for i in range(6)))
    driver.cancel(5)
    driver.turn()
    driver.take(driver.scheduler.fail("the device is gone"))
    assert all(driver.got[i].failure == "the device is gone" for i in range(5))
    assert driver.scheduler.idle
    assert not driver.scheduler.can_plan()
    with pytest.raises(ExecutionError, match="the device is gone"):
        driver.scheduler.submit(request(7))
