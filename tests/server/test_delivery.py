"""What a reader that pauses holds: its permit, and nothing of anybody else's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import ExitStack
from typing import Any

import pytest

from helios.server.app import build_app
from helios.server.lifecycle import Lifecycle, RequestEvent
from helios.worker.messages import Finish, Submit, TokensEvent
from tests.server.scripted import (
    FRONTEND,
    OPTIONS,
    RunningServer,
    ScriptedClient,
    running_server,
    says,
    served_model,
)
from tests.server.slow_reader import SlowReader, body_of

PATH = "/v1/completions"
BODY: dict[str, Any] = {"model": "sample", "prompt": "hello"}
# More than two small kernel buffers take, as text with logprobs.
LETTERS = FRONTEND.tokenizer.encode("abcdefghij") * 1500
BUFFER_NBYTES = 4096


async def speaks_at_length(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
    """LETTERS, a hundred an event."""
    for first in range(0, len(LETTERS), 100):
        some = LETTERS[first : first + 100]
        last = first + 100 >= len(LETTERS)
        yield TokensEvent(submit.request_id, some, [-0.5] * len(some), Finish.LIMIT if last else 0)
        await asyncio.sleep(0)


def _permits(server: RunningServer) -> float:
    return server.metrics()["flare_http_permits"]


def _text(stream: bool, answer: bytes) -> str:
    body = body_of(answer)
    if not stream:
        return str(json.loads(body)["choices"][0]["text"])
    *chunks, done = [line[6:] for line in body.decode().split("\n") if line]
    assert done == "[DONE]"
    return "".join(json.loads(chunk)["choices"][0]["text"] for chunk in chunks)


@pytest.mark.clause("HTTP-4", "HTTP-1")
@pytest.mark.parametrize("stream", [False, True])
def test_a_permit_is_held_until_the_answer_has_been_read(stream: bool) -> None:
    """The model is done with both, but nobody has read them: one more is too many."""
    with (
        running_server(speaks_at_length, permits=2, send_buffer_nbytes=BUFFER_NBYTES) as server,
        ExitStack() as stack,
    ):
        body = BODY | {"logprobs": 0, "stream": stream}
        readers = [stack.enter_context(SlowReader(server.url, PATH, body)) for _ in range(2)]
        begun = [reader.some() for reader in readers]  # the answers' first bytes are out
        if not stream:
            server.client.wait_until(lambda: server.client.running == 0)
        assert _permits(server) == 2
        refused = server.http.post(PATH, json=BODY)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
        for first, reader in zip(begun, readers, strict=True):
            assert _text(stream, first + reader.rest()) == "abcdefghij" * 1500
        while _permits(server):  # it comes back in another thread
            pass
        server.client.script = says("hello")
        assert server.http.post(PATH, json=BODY).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_permit_comes_back_before_the_answers_reader_can_ask_again(stream: bool) -> None:
    """In the same turn of the event loop as the last byte: no other request is heard before."""
    held: list[int] = []

    async def ask() -> None:
        loop, lifecycle = asyncio.get_running_loop(), Lifecycle()
        model = served_model(ScriptedClient(says("hello")), permits=1)
        lifecycle.serve(model)
        bodies = [json.dumps(BODY | {"stream": stream}).encode()]

        async def receive() -> dict[str, Any]:
            if bodies:
                return {"type": "http.request", "body": bodies.pop()}
            return await loop.create_future()

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                held.append(model.admission.held)
                loop.call_soon(lambda: held.append(model.admission.held))

        scope = {"type": "http", "method": "POST", "path": PATH, "headers": [], "query_string": b""}
        await build_app(lifecycle, OPTIONS)(scope, receive, send)
        model.preparation.shutdown()

    asyncio.run(ask())
    assert held == [1, 0]


@pytest.mark.parametrize("stream", [False, True])
def test_as_many_clients_as_permits_are_never_refused(stream: bool) -> None:
    """Each asks again as soon as it has read its answer."""
    with running_server(says("hello"), permits=1) as server:
        answers = [server.http.post(PATH, json=BODY | {"stream": stream}) for _ in range(25)]
        assert {answer.status_code for answer in answers} == {200}
        assert _permits(server) == 0


@pytest.mark.clause("HTTP-3")
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_during_delivery_gives_its_permit_back(stream: bool) -> None:
    with running_server(speaks_at_length, send_buffer_nbytes=BUFFER_NBYTES) as server:
        body = BODY | {"logprobs": 0, "stream": stream}
        with SlowReader(server.url, PATH, body) as reader:
            reader.some()
            assert _permits(server) == 1
        while _permits(server):
            pass
        server.client.wait_until(lambda: server.client.running == 0)
