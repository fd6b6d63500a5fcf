"""What a reader gets that was slower than the model: fewer chunks, and the same answer."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from helios.server.lifecycle import RequestEvent
from helios.worker.messages import Finish, Submit, TokensEvent
from tests.server.scripted import FRONTEND, RunningServer, running_server
from tests.server.slow_reader import SlowReader, body_of

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
BODIES: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"model": "sample", "prompt": "hello", "stream": True},
    CHAT: {"model": "sample", "messages": [{"role": "user", "content": "hello"}], "stream": True},
}
both = pytest.mark.parametrize("path", list(BODIES))
# Half characters among them, and more than fits into a few small buffers.
TEXT = "abcdé🦜" * 1500
TOKENS = FRONTEND.tokenizer.encode(TEXT)
BUFFER_NBYTES = 4096


async def speaks(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
    """A token an event."""
    for index, token in enumerate(TOKENS):
        finish = Finish.LIMIT if index == len(TOKENS) - 1 else 0
        yield TokensEvent(submit.request_id, [token], [-float(index)], finish, completed_ns=index)
        await asyncio.sleep(0)


def _missed(server: RunningServer, path: str, **more: Any) -> list[dict[str, Any]]:
    """The chunks of a reader who looks away until the model has ended."""
    with SlowReader(server.url, path, BODIES[path] | more) as reader:
        begun = reader.some()
        server.client.wait_until(lambda: server.client.running == 0)
        body = body_of(begun + reader.rest())
    *chunks, done = [line[6:] for line in body.decode().split("\n") if line]
    assert done == "[DONE]"
    return [json.loads(chunk) for chunk in chunks]


def _choices(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [choice for chunk in chunks for choice in chunk["choices"]]


def _text(choice: dict[str, Any]) -> str:
    text: str = choice.get("delta", {}).get("content") or choice.get("text") or ""
    return text


@pytest.mark.clause("HTTP-4")
@both
def test_a_slow_reader_gets_the_same_text_in_fewer_chunks(path: str) -> None:
    with running_server(speaks, send_buffer_nbytes=BUFFER_NBYTES) as server:
        chunks = _missed(server, path, stream_options={"include_usage": True})
    choices = _choices(chunks)
    assert "".join(map(_text, choices)) == TEXT
    assert len(choices) < len(TOKENS) / 2
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["length"]
    assert chunks[-1]["usage"]["completion_tokens"] == len(TOKENS)


@pytest.mark.clause("HTTP-4")
def test_log_probabilities_come_together_too() -> None:
    with running_server(speaks, send_buffer_nbytes=BUFFER_NBYTES) as server:
        choices = _choices(_missed(server, COMPLETIONS, logprobs=0))
    assert "".join(map(_text, choices)) == TEXT
    scores = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    assert len(scores) < len(TOKENS) / 2
    together = [value for score in scores for value in score["token_logprobs"]]
    assert together == [-float(index) for index in range(len(TOKENS))]


def test_several_choices_keep_apart() -> None:
    with running_server(speaks, send_buffer_nbytes=BUFFER_NBYTES) as server:
        choices = _choices(_missed(server, COMPLETIONS, n=3))
    for index in range(3):
        own = [choice for choice in choices if choice["index"] == index]
        assert "".join(map(_text, own)) == TEXT
        assert own[-1]["finish_reason"] == "length"


@pytest.mark.clause("OBS-1", "OBS-2")
def test_observed_tokens_keep_a_chunk_each() -> None:
    with running_server(speaks, send_buffer_nbytes=BUFFER_NBYTES) as server:
        observation = {"return_token_ids": True, "return_token_timestamps": True}
        choices = _choices(_missed(server, CHAT, **observation))
    observed = [choice for choice in choices if "token_ids" in choice]
    assert [choice["token_ids"] for choice in observed] == [[token] for token in TOKENS]
    times = [choice["token_timestamps_ns"] for choice in observed]
    assert times == [[index] for index in range(len(TOKENS))]
    assert "".join(map(_text, choices)) == TEXT


@both
def test_a_reader_that_keeps_up_gets_each_token_as_it_comes(path: str) -> None:
    async def waits_to_be_read(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
        for token in FRONTEND.tokenizer.encode("abc"):
            yield TokensEvent(submit.request_id, [token], [-0.5], 0)
            await asyncio.to_thread(read.acquire)
        yield TokensEvent(submit.request_id, [2], [-0.5], Finish.EOS)

    read = threading.Semaphore(0)
    with (
        running_server(waits_to_be_read) as server,
        server.http.stream("POST", path, json=BODIES[path]) as response,
    ):
        texts = []
        for line in filter(None, response.iter_lines()):
            if line != "data: [DONE]" and (text := _text(json.loads(line[6:])["choices"][0])):
                texts.append(text)
                read.release()
    assert texts == ["a", "b", "c"]
