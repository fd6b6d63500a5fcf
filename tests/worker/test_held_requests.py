"""Requests with stop strings wait until tokens can be read as text, and nobody else does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from helios.errors import CoreError, ExecutionError
from helios.frontend.token_bytes import TokenBytes
from helios.worker.messages import (
    Cancel,
    FailedEvent,
    Finish,
    FromWorker,
    Shutdown,
    Submit,
    TokensEvent,
    ToWorker,
)
from helios.worker.model_worker import ModelWorker
from tests.scheduler.driving import request
from tests.scheduler.fake_model import FakeModel, alone, geometry
from tests.worker.test_model_worker import Answer, Client, submit
from tests.worker.test_worker_stops import ONE, TOKENIZER, TOKENS, stopping, text_of


class Opening:
    """Opens token bytes, once `may_end` is set; notes how often."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.times = 0

    def __call__(self) -> TokenBytes:
        self.times += 1
        assert self.may_end.wait(20)
        return TOKENIZER


def serve(
    *messages: ToWorker,
    opening: Callable[[], TokenBytes],
    answer: Answer | None = None,
    model: FakeModel | None = None,
) -> Client:
    client = Client(*messages, answer=answer)
    model = model or FakeModel(geometry(pages=24))
    ModelWorker(model, client.channel, open_token_bytes=opening).run()
    return client


@pytest.mark.parametrize(
    ("requests", "times"),
    [
        ([submit(ONE), stopping(request(2, prompt=3, limit=3), sequences=((5,),))], 0),
        ([stopping(request(i, prompt=3, limit=3), "never") for i in (2, 3)], 1),
    ],
)
def test_token_bytes_are_opened_once_and_only_for_strings(
    requests: list[Submit], times: int
) -> None:
    opening = Opening()
    opening.may_end.set()
    serve(*requests, opening=opening)
    assert opening.times == times


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (CoreError("is gone", where="tokenizer"), "tokenizer: is gone"),
        (ValueError("is gone"), "stop: the tokenizer can't be opened (ValueError('is gone'))"),
    ],
)
def test_what_cannot_be_opened_fails_its_requests_alone(error: Exception, message: str) -> None:
    def fails() -> TokenBytes:
        raise error

    others = [stopping(request(i, prompt=3), "a") for i in (2, 3)]
    client = serve(*others, submit(ONE), opening=fails)
    failed = [m for m in client.messages if isinstance(m, FailedEvent)]
    assert [(m.request_id, m.message) for m in failed] == [(2, message), (3, message)]
    assert client.tokens_of(1) == TOKENS


def test_others_are_served_meanwhile() -> None:
    opening = Opening()

    def end_after_the_first(messages: Sequence[FromWorker]) -> list[ToWorker]:
        if any(isinstance(m, TokensEvent) and m.request_id == 1 and m.finish for m in messages):
            opening.may_end.set()
        return []

    unstopped, stopped = (request(i, prompt=3, limit=12) for i in (2, 3))
    stop = text_of(alone(stopped)[0])[4:6]
    client = serve(
        stopping(unstopped, "never"),
        stopping(stopped, stop),
        submit(ONE),
        opening=opening,
        answer=end_after_the_first,
    )
    order = [m.request_id for m in client.messages if isinstance(m, TokensEvent)]
    assert order[:12] == [1] * 12
    assert client.tokens_of(2) == alone(unstopped)[0]
    assert client.events_of(3)[-1].finish == Finish.STOP


def test_a_held_request_can_be_cancelled_and_the_end_cancels_it() -> None:
    opening = Opening()

    def end(messages: Sequence[FromWorker]) -> list[ToWorker]:
        ended = {m.request_id for m in messages if isinstance(m, TokensEvent) and m.finish}
        return [Shutdown(), stopping(request(4, prompt=3), "a")] if 1 in ended else []

    held = [stopping(request(i, prompt=3), "a") for i in (2, 3)]
    client = serve(*held, Cancel(2), submit(ONE), opening=opening, answer=end)
    assert not opening.may_end.is_set()
    opening.may_end.set()
    for request_id in (2, 3, 4):
        assert [e.finish for e in client.events_of(request_id)] == [Finish.CANCELLED]
    assert client.tokens_of(1) == TOKENS


def test_a_held_request_fails_with_the_device() -> None:
    opening = Opening()
    model = FakeModel(geometry(pages=24))
    model.breaks_at = 3
    client = Client(stopping(request(2, prompt=3), "a"), submit(ONE))
    with pytest.raises(ExecutionError, match="the program broke"):
        ModelWorker(model, client.channel, open_token_bytes=opening).run()
    opening.may_end.set()
    failed = [m.request_id for m in client.messages if isinstance(m, FailedEvent)]
    assert failed == [1, 2]
