"""Grammars in the worker: compiled beside the loop, followed token by token to their end."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from llguidance import LLTokenizer

from helios.errors import CoreError, ExecutionError
from helios.frontend.grammar.compiler import grammar_tokenizer
from helios.frontend.response.marked_text import MarkerSigns
from helios.frontend.tokenizer import Tokenizer
from helios.scheduler import Request
from helios.scheduler.forcing import Forcing
from helios.worker import grammars
from helios.worker.grammars import Grammars
from helios.worker.messages import (
    Cancel,
    FailedEvent,
    Finish,
    FromWorker,
    ReadStatistics,
    Shutdown,
    Statistics,
    Submit,
    TokensEvent,
    ToWorker,
)
from helios.worker.model_worker import ModelWorker
from tests.frontend.vocabularies import byte_level
from tests.scheduler.constrained import forcing_model
from tests.scheduler.driving import request
from tests.scheduler.fake_geometry import VOCABULARY
from tests.scheduler.fake_model import FakeModel, alone
from tests.worker.test_model_worker import Answer, Client, submit

TOKENIZER = Tokenizer(byte_level())
EOS = 2


def vocabulary() -> LLTokenizer:
    """The fake model's tokens as grammars see them."""
    return grammar_tokenizer(TOKENIZER, MarkerSigns(), [EOS], VOCABULARY)


def spelled(token: int) -> str:
    return TOKENIZER.token_bytes(token).decode()


# Some of the fake model's tokens that are one letter each.
LETTERS = [spelled(token) for token in range(5, VOCABULARY)]
A, B, C, D = LETTERS[:4]


def grammar(lark: str) -> str:
    return json.dumps({"grammars": [{"name": "response", "lark_grammar": f"start: {lark}"}]})


def following(one: Request, lark: str) -> Submit:
    return msgspec.structs.replace(submit(replace(one, eos_ids=(EOS,))), grammar=grammar(lark))


def serve(
    *messages: ToWorker,
    opening: grammars.OpenVocabulary = vocabulary,
    model: FakeModel | None = None,
    answer: Answer | None = None,
) -> Client:
    client = Client(*messages, answer=answer)
    ModelWorker(model or forcing_model(), client.channel, open_vocabulary=opening).run()
    return client


def text_of(client: Client, request_id: int) -> str:
    tokens = client.tokens_of(request_id)
    return "".join(spelled(token) for token in tokens if token != EOS)


@pytest.mark.clause("FRONT-14")
def test_tokens_are_the_grammars_and_its_end_is_an_end() -> None:
    one = request(1, prompt=4, limit=20)
    client = serve(following(one, f'/[{A}{B}]{{3,5}}/ "{C}{D}{C}{D}{C}"'))
    text = text_of(client, 1)
    assert text.removesuffix(f"{C}{D}{C}{D}{C}").strip(A + B) == ""
    assert 8 <= len(text) <= 10
    assert client.tokens_of(1)[-1] == EOS
    assert client.events_of(1)[-1].finish == Finish.EOS


def test_fixed_text_takes_one_round() -> None:
    model = forcing_model(scored=((16, 4),))
    fixed = (C + D) * 4
    client = serve(following(request(1, prompt=4, limit=20), f'"{fixed}" /[{A}{B}]/'), model=model)
    assert text_of(client, 1)[:-1] == fixed
    rounds = [name.split(".")[0] for name in model.programs_run]
    assert rounds == ["initialize", "prefill", "initialize", "scored", "decode"]
    assert [len(event.tokens) for event in client.events_of(1)] == [1, 8, 1]
    assert all(len(event.tokens) == len(event.logprobs) for event in client.events_of(1))


@pytest.mark.parametrize(("others", "fixed", "given"), [(0, 3, True), (1, 3, False), (1, 4, True)])
def test_the_more_would_wait_the_more_fixed_text_it_takes(
    monkeypatch: pytest.MonkeyPatch, others: int, fixed: int, given: bool
) -> None:
    """The first of the fixed tokens is sampled with the prompt."""
    monkeypatch.setattr(Forcing, "others", lambda forcing, request_id: others)
    model = forcing_model(scored=((16, 4),))
    text = (C + D + C + D)[:fixed]
    one = following(request(9, prompt=4, limit=12), f'"{text}" /[{A}{B}]{{3}}/')
    client = serve(one, model=model)
    assert text_of(client, 9).startswith(text)
    assert any(name.startswith("scored") for name in model.programs_run) == given


def test_tokens_that_must_come_come_without_a_round_of_their_own_too() -> None:
    texts = {}
    for scored in ((), ((16, 4),)):
        one = following(request(1, prompt=4, limit=20), f'/[{A}{B}]/ "{C}{D}{C}" /[{A}{B}]{{2}}/')
        texts[scored] = text_of(serve(one, model=forcing_model(scored=scored)), 1)
    assert len(set(texts.values())) == 1


@pytest.mark.parametrize("text", ["{", grammar('"a" missing'), grammar(f'"{A}" /(?=b)/')])
def test_a_grammar_that_cannot_be_compiled_fails_its_request_alone(text: str) -> None:
    bad = msgspec.structs.replace(submit(request(2, prompt=3)), grammar=text)
    one = request(1, prompt=3, limit=8)
    client = serve(bad, submit(one))
    (failed,) = [m for m in client.messages if isinstance(m, FailedEvent)]
    assert failed.request_id == 2
    assert failed.message.startswith("grammar: the grammar can't be compiled: ")
    assert client.tokens_of(1) == alone(one)[0]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (CoreError("is gone", where="tokenizer"), "tokenizer: is gone"),
        (ValueError("is gone"), "grammar: the vocabulary can't be made (ValueError('is gone'))"),
    ],
)
def test_a_vocabulary_that_cannot_be_made_fails_who_needs_it(
    error: Exception, message: str
) -> None:
    def fails() -> LLTokenizer:
        raise error

    one = request(1, prompt=3, limit=8)
    others = [following(request(i, prompt=3), f'"{A}"') for i in (2, 3)]
    client = serve(*others, submit(one), opening=fails)
    failed = {m.request_id: m.message for m in client.messages if isinstance(m, FailedEvent)}
    assert failed == {2: message, 3: message}
    assert client.tokens_of(1) == alone(one)[0]


class SlowVocabulary:
    """Makes the vocabulary once `may_end` is set."""

    def __init__(self) -> None:
        self.may_end = threading.Event()

    def __call__(self) -> LLTokenizer:
        assert self.may_end.wait(20)
        return vocabulary()


def test_others_are_served_while_a_grammar_is_compiled() -> None:
    opening = SlowVocabulary()

    def end_after_the_first(messages: Sequence[FromWorker]) -> list[ToWorker]:
        if any(isinstance(m, TokensEvent) and m.request_id == 1 and m.finish for m in messages):
            opening.may_end.set()
        return []

    one = request(1, prompt=3, limit=8)
    held = following(request(2, prompt=3, limit=9), f"/[{A}{B}]{{4}}/")
    client = serve(held, submit(one), opening=opening, answer=end_after_the_first)
    order = [m.request_id for m in client.messages if isinstance(m, TokensEvent)]
    assert order[:8] == [1] * 8
    assert len(text_of(client, 2)) == 4


def test_a_request_can_be_cancelled_while_its_grammar_is_compiled() -> None:
    opening = SlowVocabulary()

    def end(messages: Sequence[FromWorker]) -> list[ToWorker]:
        ended = {m.request_id for m in messages if isinstance(m, TokensEvent) and m.finish}
        return [Shutdown()] if 1 in ended else []

    held = [following(request(i, prompt=3), f'"{A}"') for i in (2, 3)]
    client = serve(*held, Cancel(2), submit(request(1, 3, 5)), opening=opening, answer=end)
    opening.may_end.set()
    for request_id in (2, 3):
        assert [event.finish for event in client.events_of(request_id)] == [Finish.CANCELLED]


def test_choices_follow_their_leader_with_matchers_of_their_own() -> None:
    leader = request(1, prompt=4, limit=12)
    lark = f"/[{A}{B}{C}]{{6}}/"
    siblings = [
        msgspec.structs.replace(
            following(replace(request(i, leader.prompt, 12), sibling_of=1), lark), sibling_of=1
        )
        for i in (2, 3, 4)
    ]
    client = serve(following(leader, lark), *siblings)
    assert [len(text_of(client, i)) for i in (1, 2, 3, 4)] == [6] * 4
    assert len({text_of(client, i) for i in (1, 2, 3, 4)}) > 1
    for one in siblings:
        by_itself = serve(msgspec.structs.replace(one, sibling_of=None))
        assert by_itself.tokens_of(one.request_id) == client.tokens_of(one.request_id)


def test_a_grammar_is_compiled_once_and_only_so_many_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grammars, "CACHED", 2)
    made = Grammars(vocabulary)
    first, second, third = (grammar(f'"{letter}"') for letter in LETTERS[:3])
    for text in (first, first, second, first, third, second):
        made.prepare(text).result()
    made.close()
    # The second was the least used when the third came.
    assert (made.counters.compiled, made.counters.cached) == (4, 2)
    assert made.counters.compile_ns > 0


def test_one_requests_matcher_is_no_others() -> None:
    made = Grammars(vocabulary)
    text = grammar(f"/[{A}{B}]{{2}}/")
    one, other = (made.prepare(text).result() for _ in range(2))
    made.close()
    letter = TOKENIZER.encode(A)[0]
    assert one.matcher.consume_tokens([letter, letter])
    assert not one.matcher.is_error()
    assert other.matcher.compute_bitmask() == other.mask != one.matcher.compute_bitmask()


@pytest.mark.parametrize("tokens", [23, 32, 33, 64])
def test_vocabularies_of_every_length_have_their_masks(tokens: int) -> None:
    """llguidance's first mask is a word longer where tokens fill theirs."""

    def opening() -> LLTokenizer:
        return grammar_tokenizer(TOKENIZER, MarkerSigns(), [EOS], tokens)

    model = forcing_model()
    model.geometry = replace(model.geometry, vocabulary_tokens=tokens)
    one = following(request(1, prompt=4, limit=9), f"/[{A}{B}]{{4}}/")
    client = serve(one, opening=opening, model=model)
    assert len(text_of(client, 1)) == 4


def test_what_grammars_cost_is_counted() -> None:
    def ask(messages: Sequence[FromWorker]) -> list[ToWorker]:
        ended = any(isinstance(m, TokensEvent) and m.finish for m in messages)
        return [ReadStatistics()] if ended else []

    client = serve(following(request(1, prompt=4, limit=9), f'/[{A}{B}]/ "{C}{D}{C}"'), answer=ask)
    statistics = next(m for m in client.messages if isinstance(m, Statistics))
    counters = statistics.counters
    assert (counters["grammar_compiled"], counters["grammar_cached"]) == (1, 0)
    assert counters["grammar_forced_tokens"] == 3
    assert counters["grammar_masks"] == 1
    assert counters["grammar_mask_ns"] > 0
    assert statistics.gauges["constrained_max_inflight"] == 1


def test_the_device_failing_ends_the_threads_and_fails_who_waits() -> None:
    opening = SlowVocabulary()
    model = forcing_model()
    model.breaks_at = 3
    client = Client(following(request(2, prompt=3), f'"{A}"'), submit(request(1, 3, 9)))
    with pytest.raises(ExecutionError, match="the program broke"):
        ModelWorker(model, client.channel, open_vocabulary=opening).run()
    opening.may_end.set()
    failed = [m.request_id for m in client.messages if isinstance(m, FailedEvent)]
    assert failed == [1, 2]


def test_masks_are_bits_of_tokens() -> None:
    from helios.worker.constraints import mask_of

    mask = mask_of([0, 31, 32, 63], 2)
    assert mask.dtype == np.uint32
    assert mask.tolist() == [1 | 1 << 31] * 2
