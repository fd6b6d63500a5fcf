"""Answers as JSON and as streams, over the scripted worker."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from helios.worker.messages import Finish, Sampling
from tests.server.scripted import FRONTEND, RunningServer, running_server, says

ANSWER = "héllo wörld 🦜"
TOKENS = len(FRONTEND.tokenizer.encode(ANSWER)) + 1  # and the EOS token
CHAT: dict[str, Any] = {"model": "sample", "messages": [{"role": "user", "content": "hello"}]}
COMPLETION: dict[str, Any] = {"model": "sample", "prompt": "hello"}
PATHS: dict[str, dict[str, Any]] = {"/v1/chat/completions": CHAT, "/v1/completions": COMPLETION}

both = pytest.mark.parametrize("path", list(PATHS))


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(says(ANSWER)) as running:
        yield running


def _post(server: RunningServer, path: str, **more: Any) -> Any:
    response = server.http.post(path, json=PATHS[path] | more)
    assert response.status_code == 200, response.text
    return response.json()


def _stream(server: RunningServer, path: str, **more: Any) -> list[Any]:
    """The events' JSON; checks that the stream ends as it should."""
    response = server.http.post(path, json=PATHS[path] | {"stream": True} | more)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    frames = response.text.split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]


def test_a_chat_answer(server: RunningServer) -> None:
    answer = _post(server, "/v1/chat/completions")
    prompt = FRONTEND.tokenizer.encode("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["model"] == "sample"
    assert answer["system_fingerprint"] == "fp_0123456789ab_cpu-portable"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": ANSWER, "refusal": None},
            "finish_reason": "stop",
            "logprobs": None,
        }
    ]
    assert answer["usage"] == {
        "prompt_tokens": len(prompt),
        "completion_tokens": TOKENS,
        "total_tokens": len(prompt) + TOKENS,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert server.client.submitted[-1].prompt_tokens == prompt


def test_a_completion(server: RunningServer) -> None:
    answer = _post(server, "/v1/completions")
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert answer["choices"] == [
        {"index": 0, "text": ANSWER, "finish_reason": "stop", "logprobs": None}
    ]
    assert answer["usage"]["prompt_tokens"] == 1


def test_a_chat_stream(server: RunningServer) -> None:
    chunks = _stream(server, "/v1/chat/completions")
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content", "") for delta in deltas) == ANSWER
    assert [c["choices"][0]["finish_reason"] for c in chunks][-2:] == [None, "stop"]
    assert deltas[-1] == {}
    assert len({(c["id"], c["created"], c["object"]) for c in chunks}) == 1
    assert all("usage" not in chunk for chunk in chunks)


def test_a_completion_stream(server: RunningServer) -> None:
    chunks = _stream(server, "/v1/completions")
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == ANSWER
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


@both
def test_no_chunk_ends_in_half_a_character(server: RunningServer, path: str) -> None:
    assert not any("\\ufffd" in json.dumps(chunk) for chunk in _stream(server, path))


@both
def test_usage_in_streams(server: RunningServer, path: str) -> None:
    chunks = _stream(server, path, stream_options={"include_usage": True})
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == TOKENS
    assert all("usage" not in c for c in _stream(server, path, stream_options={}))
    options = {"include_usage": None}
    assert all("usage" not in c for c in _stream(server, path, stream_options=options))


@both
def test_usage_says_what_was_reused_of_the_prompt(path: str) -> None:
    with running_server(says(ANSWER, reused=7)) as server:
        assert _post(server, path)["usage"]["prompt_tokens_details"] == {"cached_tokens": 7}
        chunks = _stream(server, path, stream_options={"include_usage": True})
        assert chunks[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 7}


def test_chat_logprobs(server: RunningServer) -> None:
    content = _post(server, "/v1/chat/completions", logprobs=True)["choices"][0]["logprobs"]
    entries = content["content"]
    assert len(entries) == TOKENS
    assert b"".join(bytes(entry["bytes"]) for entry in entries[:-1]).decode() == ANSWER
    assert entries[-1]["token"] == "<|im_end|>"
    assert {(e["logprob"], len(e["top_logprobs"])) for e in entries} == {(-0.5, 0)}
    chunks = _stream(server, "/v1/chat/completions", logprobs=True)
    streamed = [c["choices"][0]["logprobs"] for c in chunks]
    assert [e for part in streamed if part for e in part["content"]] == entries


def test_completion_logprobs(server: RunningServer) -> None:
    logprobs = _post(server, "/v1/completions", logprobs=0)["choices"][0]["logprobs"]
    assert logprobs["token_logprobs"] == [-0.5] * TOKENS
    assert logprobs["top_logprobs"] is None
    assert logprobs["tokens"][-1] == "<|im_end|>"
    offsets = logprobs["text_offset"]
    assert offsets == sorted(offsets)
    assert offsets[-1] == len(ANSWER)
    chunks = _stream(server, "/v1/completions", logprobs=0)
    parts = [c["choices"][0]["logprobs"] for c in chunks if c["choices"][0]["logprobs"]]
    assert [offset for part in parts for offset in part["text_offset"]] == offsets


@both
def test_the_output_limit_is_a_length_finish(path: str) -> None:
    with running_server(says("hello", finish=Finish.LIMIT)) as server:
        assert _post(server, path, max_tokens=1)["choices"][0]["finish_reason"] == "length"
        assert server.client.submitted[-1].output_limit == 1


def test_either_name_of_the_output_limit(server: RunningServer) -> None:
    _post(server, "/v1/chat/completions", max_completion_tokens=7)
    assert server.client.submitted[-1].output_limit == 7


@both
def test_sampling_reaches_the_worker(server: RunningServer, path: str) -> None:
    _post(server, path, temperature=0.25, top_k=5, top_p=0.5, min_p=0.125, seed=42)
    assert server.client.submitted[-1].sampling == Sampling(0.25, 5, 0.5, 0.125, 42)
    assert server.client.submitted[-1].eos_ids == [2]
    _post(server, path)
    sampling = server.client.submitted[-1].sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (1, 0, 1, 0)


@both
def test_a_priority_reaches_the_worker(server: RunningServer, path: str) -> None:
    for said, meant in ((-3, -3), (16, 16), (None, 0)):
        _post(server, path, priority=said)
        assert server.client.submitted[-1].priority == meant
    _post(server, path)
    assert server.client.submitted[-1].priority == 0


@pytest.mark.parametrize("prompt", ["hello", ["hello"], [100, 101], [[100, 101]]])
def test_prompts_may_be_text_or_ids(server: RunningServer, prompt: Any) -> None:
    _post(server, "/v1/completions", prompt=prompt)
    text = prompt if isinstance(prompt, str) else prompt[0]
    expected = FRONTEND.tokenizer.encode("hello") if isinstance(text, str) else [100, 101]
    assert server.client.submitted[-1].prompt_tokens == expected


def test_text_parts_are_joined(server: RunningServer) -> None:
    def prompt(content: Any) -> list[int]:
        _post(server, "/v1/chat/completions", messages=[{"role": "user", "content": content}])
        return server.client.submitted[-1].prompt_tokens

    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert prompt(parts) == prompt("a\nb")


@both
def test_neutral_values_and_nulls_are_accepted(server: RunningServer, path: str) -> None:
    fields = ["n", "stop", "logit_bias", "presence_penalty", "seed", "user", "stream", "max_tokens"]
    _post(server, path, **dict.fromkeys(fields))
    neutral = {"n": 1, "stop": [], "logit_bias": {}, "presence_penalty": 0, "frequency_penalty": 0}
    accepted = {"user": "me", "metadata": {"a": 1}, "store": True, "service_tier": "auto"}
    response_format = {"response_format": {"type": "text"}}
    _post(server, path, **neutral, **accepted, **response_format)


def test_neutral_values_of_chat(server: RunningServer) -> None:
    neutral = {"tools": [], "tool_choice": "none", "top_logprobs": 0, "modalities": ["text"]}
    _post(server, "/v1/chat/completions", **neutral, parallel_tool_calls=False)


@both
def test_unknown_fields_are_named_in_a_header(server: RunningServer, path: str) -> None:
    more = {"zeta": 1, "alpha": None, "x\r\ny": 2, "é": 3}
    response = server.http.post(path, json=PATHS[path] | more)
    assert response.headers["x-helios-ignored"] == "alpha, x%0D%0Ay, zeta, %C3%A9"
    assert "x-helios-ignored" not in server.http.post(path, json=PATHS[path]).headers


def test_the_header_of_unknown_fields_can_be_read_back(server: RunningServer) -> None:
    names = ["a,b", "50%", "+3", "a b", "[x]/~", "\U0001f600", "\x7f\x00"]
    answer = server.http.post("/v1/completions", json=COMPLETION | dict.fromkeys(names, 1))
    shown = answer.headers["x-helios-ignored"]
    assert shown.isascii()
    assert sorted(map(urllib.parse.unquote, shown.split(", "))) == sorted(names)


def test_the_header_of_unknown_fields_is_bounded(server: RunningServer) -> None:
    names = [f"f{number:03}" for number in range(37)]
    answer = server.http.post("/v1/completions", json=COMPLETION | dict.fromkeys(names, 1))
    assert answer.headers["x-helios-ignored"].split(", ") == [*names[:20], "+17"]
    answer = server.http.post("/v1/completions", json=COMPLETION | {"é" * 100_000: 1})
    assert answer.headers["x-helios-ignored"] == "%C3%A9" * 16
    answer = server.http.post("/v1/completions", json=COMPLETION | {"aé" * 100_000: 1})
    assert len(answer.headers["x-helios-ignored"]) <= 96


def test_unknown_fields_within_messages_and_options_are_named(server: RunningServer) -> None:
    part = {"type": "text", "text": "hello", "cache_control": {}}
    messages = [
        {"role": "user", "content": [part], "id": 1},
        {"role": "assistant", "content": "a", "prefix": True},
    ]
    body = CHAT | {"messages": messages, "stream": True, "stream_options": {"zeta": 1}}
    response = server.http.post("/v1/chat/completions", json=body)
    assert response.headers["x-helios-ignored"] == (
        "messages[].content[].cache_control, messages[].id, messages[].prefix, stream_options.zeta"
    )


@both
def test_aliases_name_the_same_model(server: RunningServer, path: str) -> None:
    assert _post(server, path, model="sample-alias")["model"] == "sample"


def test_request_ids_are_echoed_or_made(server: RunningServer) -> None:
    def request_id(**headers: str) -> str:
        return server.http.get("/health", headers=headers).headers["x-request-id"]

    assert request_id(**{"x-request-id": "abc-1"}) == "abc-1"
    assert len(request_id()) == 32
    assert request_id() != request_id()
    assert request_id(**{"x-request-id": "x" * 129}) != "x" * 129
