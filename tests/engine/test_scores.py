"""Scores of prompts through the engine: whatever is cached, and whatever else happens to a request,
its prompt gets the scores of a run without any of it, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.engine import Engine, Generation, GenerationOptions
from helios.errors import RequestError
from helios.frontend.output import PromptToken
from helios.scheduler import Finish, SchedulerOptions

# Shares pages of 32 tokens with itself alone, in part, and not at all.
TEXT = [(11 * i * i + 5 * i) % 300 for i in range(100)]
PROMPTS = (TEXT, TEXT[:64], TEXT[:70] + [7] * 20, TEXT[:31], [9] * 40, TEXT[:1], TEXT[:2])
SCORED = GenerationOptions(max_tokens=5, temperature=0.9, seed=3, prompt_logprobs=4)
PLAIN = replace(SCORED, prompt_logprobs=None)
NO_REUSE = SchedulerOptions(prefix_reuse=False, frames_in_flight=1)
FEW_PAGES_NBYTES = 8 << 13


@pytest.fixture(scope="module")
def alone(tiny_core: Path) -> list[Generation]:
    """Each prompt by itself, with nothing to reuse."""
    with Engine.open(tiny_core, accept="tests", threads=1, scheduler=NO_REUSE) as engine:
        return [engine.generate([prompt], SCORED)[0] for prompt in PROMPTS]


@pytest.fixture(scope="module")
def reusing(tiny_core: Path) -> Iterator[Engine]:
    """An engine that keeps what it has computed from one example to the next."""
    scheduler = SchedulerOptions(prefill_chunk_tokens=24)
    with Engine.open(tiny_core, accept="tests", threads=1, scheduler=scheduler) as engine:
        yield engine


def test_every_token_but_the_first_has_a_score(alone: list[Generation]) -> None:
    for prompt, told in zip(PROMPTS, alone, strict=True):
        first, *others = told.prompt_scores
        assert (first.logprob, first.rank, first.alternatives) == (None, None, ())
        assert [token.token for token in told.prompt_scores] == prompt
        for token in others:
            assert token.logprob is not None
            assert token.rank is not None
            assert len(token.alternatives) == 4
            there = [other.logprob for other in token.alternatives]
            assert there == sorted(there, reverse=True)
            assert (token.rank <= 4) == (token.token in {o.token for o in token.alternatives})
            if token.rank <= 4:
                found = token.alternatives[token.rank - 1]
                assert (found.token, found.logprob) == (token.token, token.logprob)
            else:
                assert token.logprob <= there[-1]


def test_a_scored_prompt_is_what_decoding_said_of_it(tiny_core: Path) -> None:
    """An answer, given back as a prompt's end, has the logprobs that it was generated with."""
    with Engine.open(tiny_core, accept="tests", threads=1) as engine:
        options = GenerationOptions(max_tokens=30, temperature=0.8, seed=5, top_logprobs=3)
        said = engine.generate([TEXT[:50]], replace(options, ignore_eos=True))[0]
        again = engine.generate(
            [[*TEXT[:50], *said.tokens]], GenerationOptions(max_tokens=0, prompt_logprobs=3)
        )[0]
    scores = again.prompt_scores[50:]
    assert tuple(token.logprob for token in scores) == said.logprobs
    assert tuple(token.alternatives for token in scores) == said.alternatives
    assert (again.tokens, again.text, again.finish) == ((), "", Finish.LIMIT)


@settings(deadline=None, max_examples=25)
@given(
    order=st.lists(
        st.tuples(st.integers(0, len(PROMPTS) - 1), st.booleans()), min_size=1, max_size=6
    ),
    reset=st.booleans(),
)
def test_hits_and_partial_hits_change_no_bit(
    reusing: Engine, alone: list[Generation], order: list[tuple[int, bool]], reset: bool
) -> None:
    if reset:
        reusing.reset_prefix_cache()
    for index, scored in order:
        told = reusing.generate([PROMPTS[index]], SCORED if scored else PLAIN)[0]
        expected = alone[index] if scored else replace(alone[index], prompt_scores=())
        assert told == expected
        assert not (scored and told.reused_prompt_tokens)


def test_a_scored_prompt_serves_those_that_come_after_it(tiny_core: Path) -> None:
    with Engine.open(tiny_core, accept="tests", threads=1) as engine:
        scored = engine.generate([TEXT], SCORED)[0]
        plain = engine.generate([TEXT], PLAIN)[0]
        before = engine.statistics().counters["prefilled_tokens"]
        again = engine.generate([TEXT], SCORED)[0]
        computed = engine.statistics().counters["prefilled_tokens"] - before
    assert scored.reused_prompt_tokens == 0
    assert plain.reused_prompt_tokens >= 96
    assert replace(scored, prompt_scores=()) == plain
    assert again == scored
    assert computed == len(TEXT)  # what isn't computed has no logits


def test_preempted_prompts_are_scored_as_if_they_had_not_been(tiny_core: Path) -> None:
    """Long prompts and long answers in a cache for two of them, all at once."""
    prompts = [[(3 * k + 7 * i) % 300 for i in range(60 + 5 * k)] for k in range(8)]
    options = replace(SCORED, max_tokens=40, ignore_eos=True)
    with Engine.open(tiny_core, accept="tests", threads=1, scheduler=NO_REUSE) as engine:
        expected = [engine.generate([prompt], options)[0] for prompt in prompts]
    with (
        Engine.open(
            tiny_core,
            accept="tests",
            threads=1,
            cache_nbytes=FEW_PAGES_NBYTES,
            scheduler=SchedulerOptions(prefill_chunk_tokens=16),
        ) as engine,
        ThreadPoolExecutor(len(prompts)) as clients,
    ):
        asked = [
            clients.submit(engine.generate, [prompt], replace(options, priority=-index))
            for index, prompt in enumerate(prompts)
        ]
        told = [one.result()[0] for one in asked]
        assert engine.statistics().counters["preemptions"] > 0
    assert told == expected


@pytest.mark.parametrize("chunk", [1, 7, 31])
@pytest.mark.parametrize("reuse", [True, False])
def test_chunks_and_company_change_no_bit(
    tiny_core: Path, alone: list[Generation], chunk: int, reuse: bool
) -> None:
    scheduler = SchedulerOptions(prefill_chunk_tokens=chunk, prefix_reuse=reuse)
    with Engine.open(tiny_core, accept="tests", threads=2, scheduler=scheduler) as engine:
        assert engine.generate(PROMPTS, SCORED) == alone


@pytest.mark.parametrize("reuse", [True, False])
def test_choices_share_the_scores_of_their_prompt(tiny_core: Path, reuse: bool) -> None:
    scheduler = SchedulerOptions(prefix_reuse=reuse)
    with Engine.open(tiny_core, accept="tests", threads=1, scheduler=scheduler) as engine:
        choices = engine.choices(TEXT, 3, SCORED)
        alone = [engine.generate([TEXT], replace(SCORED, seed=3 + i))[0] for i in range(3)]
    assert choices == alone
    assert len({choice.tokens for choice in choices}) > 1


def test_a_stream_has_the_scores_in_its_first_step(
    tiny_core: Path, alone: list[Generation]
) -> None:
    with Engine.open(tiny_core, accept="tests", threads=1) as engine:
        first, *others = engine.stream(TEXT, SCORED)
    assert first.prompt_scores == alone[0].prompt_scores
    assert all(one.prompt_scores == () for one in others)


def test_none_of_the_likeliest_are_wanted(tiny_core: Path, alone: list[Generation]) -> None:
    with Engine.open(tiny_core, accept="tests", threads=1) as engine:
        told = engine.generate([TEXT], replace(SCORED, prompt_logprobs=0))[0]
    bare: tuple[PromptToken, ...] = tuple(
        token._replace(alternatives=()) for token in alone[0].prompt_scores
    )
    assert told.prompt_scores == bare


@pytest.mark.parametrize("wanted", [-1, 21])
def test_so_many_cant_be_had(tiny_core: Path, wanted: int) -> None:
    with (
        Engine.open(tiny_core, accept="tests", threads=1) as engine,
        pytest.raises(RequestError, match=f"prompt_logprobs: {wanted} is out of range"),
    ):
        engine.generate([TEXT], replace(SCORED, prompt_logprobs=wanted))
