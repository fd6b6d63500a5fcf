"""Prompts whose own tokens' logprobs are wanted: chunks, collection, delivery, refusal."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.errors import AdmissionError
from helios.runtime.geometry import HistoryRules
from helios.runtime.rounds import Alternatives, Completion, Ranking
from helios.runtime.scoring_rules import ScoringRules
from helios.scheduler import Finish, Request, SchedulerOptions
from tests.scheduler.driving import Driver, request
from tests.scheduler.fake_model import FakeModel, alone, geometry, rankings_alone, scores_alone

NONE = Alternatives((), ())


def scored(
    request_id: int, prompt: int | tuple[int, ...] = 5, limit: int = 4, likeliest: int = 0
) -> Request:
    one = request(request_id, prompt, limit)
    return replace(one, score_prompt=True, prompt_top_logprobs=likeliest)


def model(pages: int = 40, **shape: int) -> FakeModel:
    return FakeModel(geometry(pages=pages, scored=((4, 2), (12, 4)), **shape))


def as_alone(driver: Driver, *requests: Request) -> bool:
    return all(
        (got.tokens, got.logprobs, got.finish) == alone(one) and got.told == told_alone(one)
        for one in requests
        for got in [driver.got[one.request_id]]
    )


def told_alone(one: Request) -> tuple[object, object, object]:
    """What a request must hear of its prompt."""
    if not one.score_prompt:
        return None, None, None
    return scores_alone(one.prompt), *rankings_alone(one.prompt, one.prompt_top_logprobs)


def test_a_prompt_is_scored_token_by_token_but_for_its_first() -> None:
    driver = Driver(model())
    one = scored(1, prompt=9)
    driver.submit(one)
    assert driver.drain()[:2] == ["initialize.b1", "scored.p12"]
    assert driver.got[1].scores is not None
    assert len(driver.got[1].scores) == 8
    assert as_alone(driver, one)


def test_a_prompt_of_one_token_has_nothing_to_score() -> None:
    driver = Driver(model())
    driver.submit(scored(1, prompt=1))
    driver.drain()
    assert driver.got[1].scores == []


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 12, 100])
def test_scores_are_collected_over_chunks(chunk: int) -> None:
    driver = Driver(model(), SchedulerOptions(prefill_chunk_tokens=chunk))
    requests = [scored(1, prompt=30, likeliest=3), scored(2, prompt=7)]
    driver.submit(*requests)
    driver.drain()
    assert as_alone(driver, *requests)


def test_the_chunk_is_no_larger_than_the_largest_program_that_scores() -> None:
    driver = Driver(FakeModel(geometry(prefill=((16, 4),), scored=((5, 4),))))
    driver.submit(scored(1, prompt=12))
    assert [name for name in driver.drain() if name.startswith("scored")] == ["scored.p5"] * 3


def test_scored_prompts_share_rounds_with_scored_prompts_only() -> None:
    driver = Driver(model())
    requests = [
        scored(1, prompt=3),
        request(2, prompt=3),
        scored(3, prompt=3),
        request(4, prompt=3),
    ]
    driver.submit(*requests)
    launched = driver.drain()
    prompts = [
        (name, lanes)
        for name, lanes in zip(launched, driver.model.lanes_submitted, strict=True)
        if name.startswith(("prefill", "scored"))
    ]
    assert prompts[:2] == [("scored.p12", 2), ("prefill.p4", 2)]
    assert as_alone(driver, *requests)


def test_a_core_without_such_programs_refuses_the_request() -> None:
    driver = Driver(FakeModel(geometry()))
    with pytest.raises(AdmissionError, match=r"request 1: .*programs don't score prompts"):
        driver.submit(scored(1))
    assert driver.scheduler.counters.rejected == 1


def test_a_cached_prompt_is_computed_again_where_it_is_scored() -> None:
    shape = replace(model().geometry, history=HistoryRules(starts_at_pages=True))
    driver = Driver(FakeModel(shape))
    prompt = tuple(range(16))
    driver.submit(request(1, prompt=prompt, limit=4))
    driver.drain()
    before = driver.scheduler.counters.prefilled_tokens
    driver.submit(request(2, prompt=prompt, limit=4))
    driver.drain()
    plain = driver.scheduler.counters.prefilled_tokens - before
    driver.submit(scored(3, prompt=prompt, limit=4))
    driver.drain()
    again = driver.scheduler.counters.prefilled_tokens - before - plain
    assert (plain, again) == (4, 16)
    assert as_alone(driver, scored(3, prompt=prompt, limit=4))


def test_a_prompt_that_is_preempted_halfway_is_scored_anew() -> None:
    """An urgent request takes the only slot between two chunks of it."""
    driver = Driver(model(slots=1), SchedulerOptions(prefill_chunk_tokens=4))
    halfway, urgent = scored(1, prompt=14, likeliest=20), replace(scored(2, prompt=6), priority=-1)
    driver.submit(halfway)
    while not driver.scheduler._live._by_id[1].scores:
        driver.turn()
    assert driver.got[1].scores is None
    driver.submit(urgent)
    driver.drain()
    assert driver.scheduler.counters.preemptions == 1
    assert as_alone(driver, halfway, urgent)


def test_a_cancelled_request_gets_no_scores() -> None:
    driver = Driver(model())
    driver.submit(scored(1, prompt=9))
    while "scored.p12" not in driver.model.programs_run:
        driver.launch()
        driver.model.run_next()
    driver.cancel(1)
    driver.drain()
    assert driver.got[1].scores is None
    assert driver.got[1].finish is Finish.CANCELLED


def without_scores(completion: Completion) -> Completion:
    return completion._replace(lanes=tuple(one._replace(scores=()) for one in completion.lanes))


def with_nan(completion: Completion) -> Completion:
    return completion._replace(
        lanes=tuple(
            one._replace(scores=tuple(math.nan for _ in one.scores)) for one in completion.lanes
        ),
    )


def with_likelier_than_certain(completion: Completion) -> Completion:
    return completion._replace(
        lanes=tuple(
            one._replace(scores=tuple(1.0 for _ in one.scores)) for one in completion.lanes
        ),
    )


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (without_scores, "0 tokens are scored, not 5"),
        (with_nan, "logprob of prompt token .* is nan"),
        (with_likelier_than_certain, r"logprob of prompt token .* is 1\.0"),
    ],
)
def test_scores_that_cant_be_true_fail_their_request(tamper: object, says: str) -> None:
    driver = Driver(model())
    driver.submit(scored(1, prompt=5), request(2, prompt=5))
    driver.model.tamper = tamper  # type: ignore[assignment]
    while not driver.got[1].ended:
        driver.turn()
    driver.model.tamper = lambda completion: completion
    driver.drain()
    assert driver.got[1].scores is None
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(driver.got[1].failure)
    assert as_alone(driver, request(2, prompt=5))


@dataclass(frozen=True)
class Wrong:
    """A ranking that can't be true: what it says of all tokens, in their order."""

    ranks: tuple[int, ...] = (3, 3, 3, 3, 0)
    alternatives: tuple[Alternatives, ...] = (*[Alternatives((1, 2), (-1.0, -2.0))] * 4, NONE)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (Wrong(ranks=(3,)), "1 tokens have a rank, not 5"),
        (Wrong(ranks=()), "0 tokens have a rank, not 5"),
        (Wrong(ranks=(3, 0, 3, 3, 0)), "the rank of prompt token .* is 0"),
        (Wrong(ranks=(3, 3, 3, 3, 1)), "the rank of prompt token -1 is 1"),
        (Wrong(alternatives=()), "alternatives of 0 scored tokens came"),
        (Wrong(alternatives=(NONE,) * 5), r"0 alternatives came .*, not 2"),
        (Wrong(alternatives=(Alternatives((1, 1), (-1.0, -2.0)),) * 5), r"1 different\), not 2"),
        (Wrong(alternatives=(Alternatives((1, 2), (-2.0, -1.0)),) * 5), "logprobs are"),
        (Wrong(ranks=(1, 3, 3, 3, 0)), "of rank 1 isn't there among the likeliest"),
    ],
)
def test_rankings_that_cant_be_true_fail_their_request(wrong: Wrong, says: str) -> None:
    ranking = Ranking(wrong.ranks, wrong.alternatives)
    driver = Driver(model())
    driver.submit(scored(1, prompt=(7, 8, 9, 10, 11), likeliest=2))
    driver.model.tamper = lambda completion: completion._replace(
        lanes=tuple(one._replace(ranking=ranking) for one in completion.lanes)
    )
    while not driver.got[1].ended:
        driver.turn()
    assert driver.got[1].scores is None
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(driver.got[1].failure)


def test_programs_without_ranks_give_scores_alone() -> None:
    shape = replace(model().geometry, scoring=ScoringRules(scores=True))
    driver = Driver(FakeModel(shape))
    driver.submit(scored(1, prompt=9))
    driver.drain()
    assert driver.got[1].told == (scores_alone(scored(1, prompt=9).prompt), [], [])
    with pytest.raises(AdmissionError, match="without the likeliest tokens"):
        driver.submit(scored(2, likeliest=1))


@pytest.mark.parametrize("wanted", [-1, 21])
def test_so_many_of_the_likeliest_cant_be_had(wanted: int) -> None:
    driver = Driver(model())
    with pytest.raises(AdmissionError, match=f"prompt_logprobs {wanted} is out of range"):
        driver.submit(scored(1, likeliest=wanted))


@given(
    prompts=st.lists(
        st.tuples(st.integers(1, 20), st.integers(1, 10), st.sampled_from([None, 0, 2, 20])),
        min_size=1,
        max_size=6,
    ),
    pages=st.integers(8, 16),
    chunk=st.sampled_from([None, 1, 3, 8]),
    frames=st.sampled_from([1, 2]),
)
@settings(deadline=None, max_examples=80)
def test_scores_are_those_of_the_prompt_alone_whatever_else_runs(
    prompts: list[tuple[int, int, int | None]], pages: int, chunk: int | None, frames: int
) -> None:
    requests = [
        replace(
            request(i, prompt, limit),
            score_prompt=wanted is not None,
            prompt_top_logprobs=wanted or 0,
        )
        for i, (prompt, limit, wanted) in enumerate(prompts)
    ]
    driver = Driver(
        model(pages),
        SchedulerOptions(prefill_chunk_tokens=chunk, frames_in_flight=frames),
    )
    driver.submit(*requests)
    driver.drain()
    assert as_alone(driver, *requests)
