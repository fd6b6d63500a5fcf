"""Grammars that can't be followed any further, in the worker: which limit it was, and that the
others don't notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from llguidance import LLParserLimits

from helios.frontend.grammar import compiler
from helios.frontend.grammar.faults import GrammarFault
from helios.worker.matcher_faults import problem_of
from helios.worker.messages import FailedEvent, ReadStatistics, Statistics, Submit
from tests.scheduler.driving import request
from tests.scheduler.fake_model import alone
from tests.worker.test_grammars import LETTERS, A, B, C, D, following, grammar, serve
from tests.worker.test_model_worker import submit

# What reaches each limit, where that is so low.
RIGHT = f'x T\nx: ("{A}" | "{B}") x | ("{A}" | "{B}")\nT: /{C}/ & /{D}/'
STATES = f"/([{A}{B}]*[{A}][{A}{B}]{{14}}){{3}}/"
LIMITS: dict[str, tuple[dict[str, int], str, str]] = {
    "row": ({"max_items_in_row": 20}, RIGHT, "over 20 open rules at once"),
    "mask": ({"step_max_items": 60}, RIGHT, "over 60 steps of its grammar's rules"),
    "states": ({"max_lexer_states": 12}, STATES, "over 12 states"),
    "fuel": ({"step_lexer_fuel": 50}, STATES, "more steps for a token than the limit"),
}


def limited(**limits: int) -> Callable[[], LLParserLimits]:
    return lambda: LLParserLimits(**limits)


def statistics(*sent: Submit) -> Any:
    def ask(messages: Any) -> list[Any]:
        ended = [m for m in messages if isinstance(m, FailedEvent) or getattr(m, "finish", 0)]
        return [ReadStatistics()] if ended else []

    client = serve(*sent, answer=ask)
    (failed,) = [m for m in client.messages if isinstance(m, FailedEvent)]
    return client, failed, [m for m in client.messages if isinstance(m, Statistics)][-1]


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_is_its_requests_own_and_says_which(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    limits, lark, said = LIMITS[limit]
    monkeypatch.setattr(compiler, "parser_limits", limited(**limits))
    endless = replace(request(2, prompt=3, limit=36), eos_ids=())
    one = request(1, prompt=3, limit=36)
    bad = msgspec.structs.replace(submit(endless), grammar=grammar(lark))
    client, failed, counted = statistics(bad, submit(one))
    assert (failed.request_id, failed.fault) == (2, GrammarFault.LIMIT)
    assert failed.message.startswith("after ")
    assert said in failed.message
    assert counted.finished["grammar"] == 1
    assert counted.finished["failed"] == 0
    assert client.tokens_of(1) == alone(one)[0]


def test_a_dead_end_is_its_requests_own() -> None:
    bad = following(
        request(2, prompt=3, limit=20), f'"{A}{B}{A}{B}{A}{B}{A}{B}" X\nX: /{B}/ & /{C}/'
    )
    one = request(1, prompt=3, limit=30)
    client, failed, _ = statistics(bad, submit(one))
    assert (failed.request_id, failed.fault) == (2, GrammarFault.DEAD_END)
    assert "allows nothing" in failed.message
    assert client.tokens_of(1) == alone(one)[0]


@pytest.mark.parametrize("first", [True, False])
def test_allowed_tokens_that_the_grammar_has_no_use_for(first: bool) -> None:
    bad = following(request(2, prompt=3, limit=20), f'"{A}{B}{A}"')
    token = {letter: index for index, letter in enumerate(LETTERS, 5)}
    allowed = (token[C],) if first else (token[A],)
    sampling = msgspec.structs.replace(bad.sampling, allowed_tokens=allowed)
    bad = msgspec.structs.replace(bad, sampling=sampling)
    one = request(1, prompt=3, limit=30)
    client, failed, counted = statistics(bad, submit(one))
    assert failed.fault is GrammarFault.EXCLUDED
    assert failed.message.startswith(f"after {0 if first else 1} tokens ")
    assert counted.finished["grammar"] == 1
    assert client.tokens_of(1) == alone(one)[0]


def test_what_nobody_knows_is_a_bug() -> None:
    problem = problem_of("panicked at nowhere\n<non-verbose/>", 7)
    assert problem.fault is GrammarFault.NONE
    assert problem.what == "its grammar can't be followed any further: panicked at nowhere"
