"""What sampling needs of the scheduler: tokens so far at each admission, alternatives, refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from helios.errors import AdmissionError
from helios.runtime.geometry import Geometry
from helios.runtime.rounds import Alternatives, Completion, LaneCompletion, SamplingParameters
from helios.runtime.sampling_rules import PLAIN
from helios.scheduler import Finish, Request, Scheduler, SchedulerOptions
from tests.scheduler.driving import Driver, request
from tests.scheduler.fake_model import VOCABULARY, FakeModel, alone, geometry, likeliest
from tests.scheduler.histories import REUSING, History, assert_as_alone, driver_of

PENALTIES: list[dict[str, float]] = [
    {"repetition_penalty": 1.2},
    {"presence_penalty": 0.5},
    {"frequency_penalty": -0.5},
]


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda penalty: next(iter(penalty)))
@pytest.mark.parametrize("history", REUSING, ids=str)
def test_a_preempted_request_goes_on_counting_where_it_was(
    history: History, penalty: dict[str, float]
) -> None:
    """More requests than pages: some are readmitted with output that counts as it did."""
    pages = 7 if history.rules.window_tokens else 12
    driver = driver_of(history, pages=pages, slots=4)
    requests = [request(n, 6, 14, **penalty) for n in range(4)]
    driver.submit(*requests)
    driver.drain()
    assert driver.scheduler.counters.preemptions
    for one in requests:
        assert_as_alone(driver, one)


@pytest.mark.parametrize("history", REUSING, ids=str)
def test_a_prompt_that_is_reused_is_counted(history: History) -> None:
    driver = driver_of(history, pages=30)
    prompt = tuple((5 * i + 2) % 23 for i in range(14))
    first = request(0, prompt, 6)
    driver.submit(first)
    driver.drain()
    again = request(1, prompt, 6, presence_penalty=1.0)
    driver.submit(again)
    driver.drain()
    assert driver.got[1].reused >= 12
    assert_as_alone(driver, again)


def test_who_looks_at_no_counts_brings_no_tokens() -> None:
    """The fake model refuses a history that nothing looks at, and the lack of one."""
    driver = Driver()
    requests = [request(1, bad_words=((3, 4),)), request(2), request(3, logit_bias=((1, 2.0),))]
    driver.submit(*requests)
    driver.drain()
    assert all(driver.got[one.request_id].tokens == alone(one)[0] for one in requests)


# ------------------------------------------------------------ alternatives


def test_alternatives_come_with_each_token_of_those_who_asked() -> None:
    driver = Driver()
    requests = [request(1, top_logprobs=3), request(2), request(3, 9, 6, top_logprobs=20)]
    driver.submit(*requests)
    driver.drain()
    for one in requests:
        got = driver.got[one.request_id]
        wanted = one.sampling.top_logprobs
        assert got.tokens == alone(one)[0]
        assert got.alternatives == [likeliest(token, wanted) for token in got.tokens if wanted]


WRONG = [
    ((), "alternatives of 0 tokens came, 1 are due"),
    ((Alternatives((1, 2), (-1.0, -2.0)),), r"2 alternatives came \(2 different\), not 3"),
    ((Alternatives((1, 2, 1), (-1.0, -2.0, -3.0)),), r"3 alternatives came \(2 different\)"),
    ((Alternatives((1, 2, 3), (-1.0, -3.0, -2.0)),), "alternatives' logprobs are"),
    ((Alternatives((1, 2, 3), (0.5, -3.0, -4.0)),), "alternatives' logprobs are"),
    ((Alternatives((1, 2, 3), (-1.0, float("nan"), -4.0)),), "alternatives' logprobs are"),
]


@pytest.mark.clause("CACHE-6")
@pytest.mark.parametrize(("alternatives", "match"), WRONG)
def test_alternatives_that_can_t_be_fail_their_request_alone(
    alternatives: tuple[Alternatives, ...], match: str
) -> None:
    driver = Driver()
    wrong, other = request(1, 5, 6, top_logprobs=3), request(2, 5, 6, top_logprobs=1)
    driver.submit(wrong, other)

    def tamper(completion: Completion) -> Completion:
        lanes: list[LaneCompletion] = list(completion.lanes)
        for number, lane in enumerate(lanes):
            if lane.slot == 0 and lane.tokens:
                lanes[number] = lane._replace(alternatives=alternatives)
        return completion._replace(lanes=tuple(lanes))

    driver.model.tamper = tamper
    driver.drain()
    assert driver.got[1].failure is not None
    assert re.search(match, driver.got[1].failure)
    assert driver.got[1].tokens == []
    assert driver.got[2].tokens == alone(other)[0]


# ------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("sampling", "match"),
    [
        ({"min_tokens": 5}, "min_tokens is 5, and the output limit 4"),
        ({"logit_bias": ((VOCABULARY, 1.0),)}, "logit_bias token id 23"),
        ({"top_logprobs": 21}, "top_logprobs is 21"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0"),
        ({"presence_penalty": float("nan")}, "presence_penalty is nan"),
        ({"min_tokens": -1}, "min_tokens is -1"),
        ({"allowed_tokens": ()}, "allowed_token_ids is empty"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[:20],
)
def test_parameters_that_can_t_be_are_refused_by_name(sampling: dict[str, Any], match: str) -> None:
    with pytest.raises(AdmissionError, match=match):
        Driver().submit(request(1, **sampling))


def test_what_the_core_lacks_is_refused_by_name() -> None:
    bare: Geometry = replace(geometry(), sampling=PLAIN)
    scheduler = Scheduler(bare, SchedulerOptions())
    one = Request(1, (1, 2), 4, SamplingParameters(frequency_penalty=0.5))
    with pytest.raises(AdmissionError, match="frequency_penalty this core's programs don't"):
        scheduler.submit(one)
    scheduler.submit(replace(one, sampling=SamplingParameters()))
    assert scheduler.waiting == 1


def test_an_end_by_limit_has_its_alternatives_too() -> None:
    driver = Driver(FakeModel(geometry()))
    one = request(1, 5, 1, top_logprobs=2)
    driver.submit(one)
    driver.drain()
    assert driver.got[1].finish is Finish.LIMIT
    assert len(driver.got[1].alternatives) == 1
