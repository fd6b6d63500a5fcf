"""Answers that follow a grammar, on a real core: what they are, that company and tokens which are
consumed unsampled change no bit of them, and how they end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLParserLimits

from helios.engine import ChatOptions, Engine, Generation
from helios.errors import RequestError
from helios.frontend.grammar import compiler
from helios.frontend.grammar.faults import GrammarDeadEndError, GrammarLimitError
from helios.frontend.grammar.structure import (
    ChoiceAnswer,
    GrammarAnswer,
    JsonAnswer,
    RegexAnswer,
    Structure,
)
from helios.frontend.prepare import GenerationOptions
from helios.frontend.sampling import UnsupportedParameterError
from helios.scheduler import Finish, SchedulerOptions
from helios.worker import constraints
from tests.engine.schemas import SCHEMAS, fits

PROMPT = [[(11 * i + 5) % 300 for i in range(9)]][0]
OPTIONS = GenerationOptions(max_tokens=200, temperature=1.0, seed=11)
# So that white space, which any JSON may have, doesn't make up most of an answer.
DENSE = replace(OPTIONS, logit_bias=dict.fromkeys((200, 201, 204, 223), -100.0))


def answer(index: int) -> JsonAnswer:
    return JsonAnswer(SCHEMAS[index], "response_format.json_schema.schema")


def shown(generation: Generation) -> tuple[object, ...]:
    return (
        generation.tokens,
        generation.logprobs,
        generation.alternatives,
        generation.finish,
        generation.text,
    )


@pytest.fixture(scope="module")
def engine(tiny_core: Path) -> Iterator[Engine]:
    with Engine.open(tiny_core, accept="tests", threads=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def page_nbytes(engine: Engine) -> int:
    return engine._model.runtime.memory["cache"] // engine.info.cache_pages


@pytest.mark.clause("FRONT-14")
@pytest.mark.parametrize("index", range(len(SCHEMAS)))
def test_answers_are_json_of_their_schema(engine: Engine, index: int) -> None:
    made = engine.generate([PROMPT], DENSE, structure=answer(index))[0]
    assert made.finish is Finish.EOS
    assert fits(json.loads(made.text), SCHEMAS[index])


@pytest.mark.parametrize(
    ("structure", "holds"),
    [
        (RegexAnswer("(yes|no), [0-9]{3}", "regex"), "(yes|no), [0-9]{3}"),
        (ChoiceAnswer(("left", "leftmost", "right"), "choice"), "left|leftmost|right"),
        (GrammarAnswer('start: "a" ("b" | "c")+ "d"', "grammar"), "a(b|c)+d"),
    ],
    ids=["regex", "choice", "grammar"],
)
def test_answers_of_other_forms(engine: Engine, structure: Structure, holds: str) -> None:
    for seed in range(3):
        options = replace(OPTIONS, seed=seed)
        made = engine.generate([PROMPT], options, structure=structure)[0]
        if made.finish is Finish.EOS:
            assert re.fullmatch(holds, made.text)
        else:
            assert made.finish is Finish.LIMIT


WAYS = {
    "seeded": DENSE,
    "greedy": replace(DENSE, temperature=0.0),
    "penalties": replace(DENSE, repetition_penalty=1.3, frequency_penalty=0.4),
    "alternatives": replace(DENSE, top_logprobs=3),
    "least": replace(DENSE, min_tokens=30),
    "bad words": replace(DENSE, bad_words=['":']),
}


@pytest.fixture(scope="module")
def one_by_one(tiny_core: Path) -> dict[tuple[str, int], Generation]:
    """What answers are where every token is sampled, each request by itself."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(constraints, "FORCED_TOKENS", 1 << 20)
        with Engine.open(tiny_core, accept="tests", threads=1) as engine:
            made = {
                (way, index): engine.generate([PROMPT], options, structure=answer(index))[0]
                for (way, options), index in product(WAYS.items(), range(len(SCHEMAS)))
            }
            assert not engine.statistics().counters["grammar_forced_tokens"]
    return made


@pytest.mark.clause("FRONT-14")
@pytest.mark.parametrize("way", WAYS)
def test_tokens_without_a_choice_are_what_would_have_been_sampled(
    tiny_core: Path, one_by_one: dict[tuple[str, int], Generation], way: str
) -> None:
    with Engine.open(tiny_core, accept="tests", threads=1) as engine:
        for index in range(len(SCHEMAS)):
            made = engine.generate([PROMPT], WAYS[way], structure=answer(index))[0]
            assert shown(made) == shown(one_by_one[way, index]), SCHEMAS[index]
        counters = engine.statistics().counters
    assert counters["grammar_forced_tokens"] > 100


@pytest.mark.parametrize("frames", [1, 2])
@pytest.mark.parametrize("pages", [None, 8])
def test_company_chunks_and_preemption_change_no_bit(
    tiny_core: Path,
    one_by_one: dict[tuple[str, int], Generation],
    frames: int,
    pages: int | None,
    page_nbytes: int,
) -> None:
    """Constrained and free requests of all kinds at once; a small cache preempts."""
    free = replace(OPTIONS, max_tokens=60)
    scheduler = SchedulerOptions(prefill_chunk_tokens=7, frames_in_flight=frames)
    nbytes = pages and pages * page_nbytes
    with Engine.open(
        tiny_core, accept="tests", threads=1, scheduler=scheduler, cache_nbytes=nbytes
    ) as engine:
        alone = engine.generate([PROMPT], free)[0]
        prepare = engine.frontend.preparer.prepare_completion
        keys: list[tuple[str, int] | None] = []
        prepared = []
        for index in range(len(SCHEMAS)):
            for way in ("seeded", "penalties", "alternatives"):
                keys.append((way, index))
                prepared.append(prepare(PROMPT, WAYS[way], structure=answer(index)))
            keys.append(None)
            prepared.append(prepare(PROMPT, free))
        made = engine._complete(prepared)
        statistics = engine.statistics()
    for key, generation in zip(keys, made, strict=True):
        assert shown(generation) == shown(alone if key is None else one_by_one[key]), key
    assert statistics.gauges["constrained_max_inflight"] == 1
    assert statistics.counters["mixed_grammar_decode_steps"] > 0
    assert bool(statistics.counters["preemptions"]) == (pages is not None)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8, 13])
def test_the_limit_cuts(
    engine: Engine, one_by_one: dict[tuple[str, int], Generation], limit: int
) -> None:
    options = replace(DENSE, max_tokens=limit)
    made = engine.generate([PROMPT], options, structure=answer(0))[0]
    whole = one_by_one["seeded", 0]
    assert made.finish is Finish.LIMIT
    assert made.tokens == whole.tokens[:limit]
    assert made.logprobs == whole.logprobs[:limit]


def test_logprobs_are_those_of_the_raw_logits(engine: Engine) -> None:
    made = engine.generate([PROMPT], DENSE, structure=answer(0))[0]
    again = [*PROMPT, *made.tokens]
    scored = engine.generate([again], GenerationOptions(max_tokens=1, prompt_logprobs=0))[0]
    logprobs = [token.logprob for token in scored.prompt_scores[len(PROMPT) :]]
    assert tuple(logprobs) == made.logprobs
    assert min(made.logprobs) < -2, "the grammar's choice isn't the model's"


def test_choices_follow_matchers_of_their_own(
    engine: Engine, one_by_one: dict[tuple[str, int], Generation]
) -> None:
    made = engine.choices(PROMPT, 4, DENSE, structure=answer(0))
    assert shown(made[0]) == shown(one_by_one["seeded", 0])
    for index, one in enumerate(made):
        seed = (DENSE.seed or 0) + index
        alone = engine.generate([PROMPT], replace(DENSE, seed=seed), structure=answer(0))[0]
        assert shown(one) == shown(alone)
        assert fits(json.loads(one.text), SCHEMAS[0])


def test_a_reader_may_go_at_any_token_and_others_go_on(engine: Engine) -> None:
    expected = engine.generate([PROMPT], DENSE, structure=answer(1))[0]
    for count in range(1, 9):
        stream = engine.stream(PROMPT, DENSE, structure=answer(4))
        for _, _ in zip(range(count), stream, strict=False):
            pass
        stream.close()  # type: ignore[attr-defined]
        made = engine.generate([PROMPT], DENSE, structure=answer(1))[0]
        assert shown(made) == shown(expected)


def test_a_request_that_ends_at_no_end_of_sequence_goes_on_to_its_limit(engine: Engine) -> None:
    options = replace(OPTIONS, max_tokens=12, ignore_eos=True)
    made = engine.generate([PROMPT], options, structure=ChoiceAnswer(("left",), "choice"))[0]
    assert made.text == "left"
    assert made.finish is Finish.LIMIT
    assert len(made.tokens) == 12


DEAD_END = GrammarAnswer('start: "abababababab" X\nX: /b/ & /c/', "guided_grammar")
# It is recursive on the right, so each character opens a rule more.
ENDLESS = GrammarAnswer('start: x X\nx: "a" x | "a"\nX: /b/ & /c/', "ebnf")
LEFT = ChoiceAnswer(("left",), "choice")


@pytest.mark.parametrize(
    ("structure", "options", "error", "where"),
    [
        (DEAD_END, {}, GrammarDeadEndError, "guided_grammar"),
        (ENDLESS, {"max_tokens": 240}, GrammarLimitError, "ebnf"),
        # l, e and f are 78, 71 and 72.
        (LEFT, {"allowed_token_ids": [78, 71]}, GrammarDeadEndError, "allowed_token_ids"),
    ],
    ids=["dead end", "limit", "allowed"],
)
def test_a_grammar_that_cannot_be_followed_ends_its_request_alone(
    tiny_core: Path,
    monkeypatch: pytest.MonkeyPatch,
    structure: Structure,
    options: dict[str, Any],
    error: type[RequestError],
    where: str,
) -> None:
    limits = LLParserLimits(max_items_in_row=100)
    monkeypatch.setattr(compiler, "parser_limits", lambda: limits)
    with Engine.open(tiny_core, accept="tests", threads=1) as engine:
        expected = engine.generate([PROMPT], DENSE, structure=answer(1))[0]
        finished = engine.statistics().finished
        beside = engine.stream(PROMPT, DENSE, structure=answer(1))
        first = next(beside)
        with pytest.raises(error) as raised:
            engine.generate([PROMPT], replace(OPTIONS, **options), structure=structure)
        assert raised.value.where == where
        after = engine.statistics().finished
        assert after["grammar"] == finished["grammar"] + 1
        assert after["failed"] == finished["failed"] == 0
        tokens = [*first.tokens, *(token for delta in beside for token in delta.tokens)]
        assert tuple(tokens) == expected.tokens


def test_tokens_that_no_answer_begins_with_are_refused_before(engine: Engine) -> None:
    with pytest.raises(RequestError) as raised:
        engine.generate([PROMPT], replace(OPTIONS, allowed_token_ids=[90, 91]), structure=LEFT)
    assert raised.value.where == "allowed_token_ids"
    assert type(raised.value) is RequestError, "it never ran"


def test_allowed_tokens_may_write_fixed_text_their_own_way(engine: Engine) -> None:
    """Which way is canonical doesn't matter then."""
    letters = [engine.frontend.preparer.prompts.tokenizer.encode(one)[0] for one in "left"]
    eos = engine.frontend.preparer.prepare_completion(PROMPT, OPTIONS).eos_ids
    options = replace(OPTIONS, allowed_token_ids=[*letters, *eos])
    made = engine.generate([PROMPT], options, structure=LEFT)[0]
    assert (made.text, made.finish) == ("left", Finish.EOS)


def test_a_core_from_before_grammars_refuses_by_name() -> None:
    core = Path(__file__).parents[1] / "data" / "cores" / "payload-2"
    options = replace(OPTIONS, max_tokens=20)
    with (
        Engine.open(core, accept="tests", threads=1, allow_unknown_publisher=True) as engine,
        pytest.raises(UnsupportedParameterError) as raised,
    ):
        engine.generate([PROMPT], options, structure=ChoiceAnswer(("left",), "guided_choice"))
    assert raised.value.where == "guided_choice"


def test_chats_take_forms_and_streams_add_up(engine: Engine) -> None:
    messages = [{"role": "user", "content": "the weather"}]
    chat = ChatOptions(structure=answer(0))
    made = engine.chat(messages, DENSE, chat)
    assert fits(json.loads(made.text), SCHEMAS[0])
    deltas = list(engine.stream_chat(messages, DENSE, chat))
    assert "".join(delta.text for delta in deltas) == made.text
    assert tuple(token for delta in deltas for token in delta.tokens) == made.tokens
    assert max(len(delta.tokens) for delta in deltas) > 2, "fixed text comes together"


def test_fixed_text_saves_rounds(
    tiny_core: Path, one_by_one: dict[tuple[str, int], Generation]
) -> None:
    """At least a third of all rounds over these schemas."""
    with Engine.open(tiny_core, accept="tests", threads=1) as engine:
        for index in range(len(SCHEMAS)):
            engine.generate([PROMPT], DENSE, structure=answer(index))
        rounds = engine.statistics().rounds
    sampled = sum(len(one_by_one["seeded", index].tokens) for index in range(len(SCHEMAS)))
    assert rounds["decode"] + 2 * rounds["scored_prefill"] < sampled * 2 / 3
