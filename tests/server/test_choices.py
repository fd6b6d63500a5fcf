"""Several answers to one request, and the likeliest tokens beside each generated one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from helios.server.lifecycle import RequestEvent
from helios.worker.messages import FailedEvent, Finish, RejectedEvent, Submit, TokensEvent
from tests.frontend.sampling_cores import SOURCES, frontend
from tests.frontend.vocabularies import EOS_ID
from tests.server.scripted import RunningServer, running_server

FRONTEND = frontend(*SOURCES)
CHAT = {"model": "sample", "messages": [{"role": "user", "content": "hello"}]}
COMPLETION = {"model": "sample", "prompt": "hello"}
PATHS: dict[str, dict[str, Any]] = {"/v1/chat/completions": CHAT, "/v1/completions": COMPLETION}
both = pytest.mark.parametrize("path", list(PATHS))
OTHERS = FRONTEND.tokenizer.encode("wxyz")


async def by_seed(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
    """An answer of as many letters as the seed says, slower the more there are; the likeliest
    tokens in each one's place are OTHERS."""
    letters = FRONTEND.tokenizer.encode("abcdefghij"[: submit.sampling.seed % 10])
    wanted = submit.sampling.top_logprobs
    for index, token in enumerate([*letters, EOS_ID]):
        for _ in range(submit.sampling.seed % 10):
            await asyncio.sleep(0)
        likeliest = (tuple(OTHERS[:wanted]), tuple(-1.0 - i for i in range(wanted)))
        finish = Finish.EOS if index == len(letters) else 0
        alternatives = [likeliest] if wanted else []
        # The others begin from the prompt that the first one has computed.
        reused = 0 if submit.sibling_of is None else 1
        yield TokensEvent(submit.request_id, [token], [-0.5], finish, [], reused, alternatives)


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running_server(by_seed, frontend=FRONTEND) as running:
        yield running


def _post(server: RunningServer, path: str, **more: Any) -> dict[str, Any]:
    response = server.http.post(path, json=PATHS[path] | more)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def _stream(server: RunningServer, path: str, **more: Any) -> list[dict[str, Any]]:
    with server.http.stream("POST", path, json=PATHS[path] | {"stream": True} | more) as response:
        lines = [line[6:] for line in response.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def _text(choice: dict[str, Any]) -> str:
    text: str = choice["message"]["content"] if "message" in choice else choice["text"]
    return text


@both
def test_each_choice_is_a_request_with_a_seed_that_is_one_higher(
    server: RunningServer, path: str
) -> None:
    body = _post(server, path, n=3, seed=2)
    assert [_text(choice) for choice in body["choices"]] == ["ab", "abc", "abcd"]
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert {choice["finish_reason"] for choice in body["choices"]} == {"stop"}
    first, *others = server.client.submitted
    assert first.sibling_of is None
    assert [one.sibling_of for one in others] == [first.request_id] * 2
    assert len({one.request_id for one in (first, *others)}) == 3
    assert {tuple(one.prompt_tokens) for one in others} == {tuple(first.prompt_tokens)}
    usage = body["usage"]
    assert usage["prompt_tokens"] == len(first.prompt_tokens)
    assert usage["completion_tokens"] == 3 + 4 + 5
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@both
@pytest.mark.parametrize("seed", [2, 9])  # the last choice ends last, or first
def test_tokens_from_the_cache_are_the_first_choices(
    server: RunningServer, path: str, seed: int
) -> None:
    whole = _post(server, path, n=2, seed=seed)["usage"]
    *_, last = _stream(server, path, n=2, seed=seed, stream_options={"include_usage": True})
    for usage in (whole, last["usage"]):
        assert usage["prompt_tokens_details"] == {"cached_tokens": 0}


@both
def test_one_choice_is_what_the_same_request_alone_gets(server: RunningServer, path: str) -> None:
    together = _post(server, path, n=4, seed=3)["choices"]
    for index, choice in enumerate(together):
        assert _text(choice) == _text(_post(server, path, seed=3 + index)["choices"][0])


def test_seeds_begin_anew_after_the_last(server: RunningServer) -> None:
    _post(server, "/v1/completions", n=3, seed=-2)
    seeds = [one.sampling.seed for one in server.client.submitted]
    assert seeds == [2**64 - 2, 2**64 - 1, 0]


@both
def test_a_stream_interleaves_choices_by_their_index(server: RunningServer, path: str) -> None:
    chunks = _stream(server, path, n=3, seed=2, stream_options={"include_usage": True})
    *choices, usage = chunks
    texts = ["", "", ""]
    ended: list[int] = []
    for chunk in choices:
        assert chunk["usage"] is None
        (choice,) = chunk["choices"]
        assert choice["index"] not in ended
        texts[choice["index"]] += choice.get("text") or choice.get("delta", {}).get("content", "")
        if choice["finish_reason"] is not None:
            ended.append(choice["index"])
    assert texts == ["ab", "abc", "abcd"]
    assert ended == [0, 1, 2]  # the shortest and fastest first
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3 + 4 + 5
    if path == "/v1/chat/completions":
        roles = [c["choices"][0] for c in choices if "role" in c["choices"][0]["delta"]]
        assert [choice["index"] for choice in roles] == [0, 1, 2]


@both
def test_choices_take_one_permit(path: str) -> None:
    with running_server(by_seed, frontend=FRONTEND, permits=2) as server:
        assert len(_post(server, path, n=5, seed=1)["choices"]) == 5
        assert len(_post(server, path, n=5, seed=1)["choices"]) == 5


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("failing", [0, 2])
def test_a_choice_that_fails_fails_the_request_and_cancels_the_others(
    server: RunningServer, failing: int, stream: bool
) -> None:
    async def script(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
        if submit.sampling.seed == failing:
            yield TokensEvent(submit.request_id, [OTHERS[0]], [-1.0], 0)
            yield FailedEvent(submit.request_id, "it broke")
            return
        while True:
            yield TokensEvent(submit.request_id, [OTHERS[1]], [-1.0], 0)
            await asyncio.sleep(0.001)

    server.client.script = script
    body = COMPLETION | {"n": 3, "seed": 0, "stream": stream}
    response = server.http.post("/v1/completions", json=body)
    assert response.status_code == (200 if stream else 500)
    last = response.text.strip().splitlines()[-1].removeprefix("data: ")
    assert json.loads(last)["error"]["message"] == "it broke"
    server.client.wait_until(lambda: server.client.running == 0)
    assert server.client.cancelled == 2


def test_a_choice_that_isn_t_admitted_is_unavailable(server: RunningServer) -> None:
    async def script(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
        yield RejectedEvent(submit.request_id, "full")

    server.client.script = script
    response = server.http.post("/v1/completions", json=COMPLETION | {"n": 2})
    assert response.status_code == 503


@both
def test_a_client_that_goes_away_cancels_all_choices(server: RunningServer, path: str) -> None:
    async def script(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
        while True:
            yield TokensEvent(submit.request_id, [OTHERS[1]], [-1.0], 0)
            await asyncio.sleep(0.001)

    server.client.script = script
    body = PATHS[path] | {"n": 3, "stream": True}
    with server.http.stream("POST", path, json=body) as response:
        next(response.iter_lines())
    server.client.wait_until(lambda: server.client.cancelled == 3)


# ------------------------------------------------------------ alternatives


def test_chat_shows_the_likeliest_tokens(server: RunningServer) -> None:
    body = _post(server, "/v1/chat/completions", seed=2, logprobs=True, top_logprobs=2)
    entries = body["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == ["a", "b", "<|im_end|>"]
    for entry in entries:
        assert entry["top_logprobs"] == [
            {"token": "w", "logprob": -1.0, "bytes": [119]},
            {"token": "x", "logprob": -2.0, "bytes": [120]},
        ]
    chunks = _stream(server, "/v1/chat/completions", seed=2, logprobs=True, top_logprobs=2)
    streamed = [c["choices"][0]["logprobs"] for c in chunks]
    assert [e for part in streamed if part for e in part["content"]] == entries


def test_completions_show_them_by_text_with_the_generated_one(server: RunningServer) -> None:
    logprobs = _post(server, "/v1/completions", seed=2, logprobs=2)["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["a", "b", "<|im_end|>"]
    assert logprobs["top_logprobs"] == [
        {"w": -1.0, "x": -2.0, token: -0.5} for token in logprobs["tokens"]
    ]


def test_without_them_there_are_none(server: RunningServer) -> None:
    chat = _post(server, "/v1/chat/completions", seed=2, logprobs=True)
    assert [e["top_logprobs"] for e in chat["choices"][0]["logprobs"]["content"]] == [[]] * 3
    plain = _post(server, "/v1/completions", seed=2, logprobs=0)
    assert plain["choices"][0]["logprobs"]["top_logprobs"] is None
    assert server.client.submitted[-1].sampling.top_logprobs == 0


# ------------------------------------------------------------ what the worker is asked


@both
def test_every_parameter_reaches_the_worker(server: RunningServer, path: str) -> None:
    (word,) = {tuple(FRONTEND.tokenizer.encode("w"))}
    _post(
        server, path, seed=1, temperature=0.5, top_k=4, top_p=0.5, min_p=0.25, max_tokens=9,
        repetition_penalty=1.25, presence_penalty=0.5, frequency_penalty=-0.5, min_tokens=3,
        logit_bias={"7": -100, "9": 2.5}, allowed_token_ids=[7, 9, 11], bad_words=["w", [9, 11]],
        stop_token_ids=[9], ignore_eos=True,
    )  # fmt: skip
    submit = server.client.submitted[-1]
    sampling = submit.sampling
    assert (sampling.temperature, sampling.top_k) == (0.5, 4)
    assert (sampling.top_p, sampling.min_p) == (0.5, 0.25)
    assert sampling.repetition_penalty == 1.25
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.5, -0.5)
    assert sampling.min_tokens == 3
    assert sampling.logit_bias == ((7, -100.0), (9, 2.5))
    assert sampling.allowed_tokens == (7, 9, 11)
    assert set(sampling.bad_words) >= {word, (9, 11)}
    assert sampling.stop_ids == (9,)
    assert submit.eos_ids == []


def test_stops_are_the_device_s_business_only_before_the_least_length(
    server: RunningServer,
) -> None:
    _post(server, "/v1/completions", seed=1, stop_token_ids=[9])
    assert server.client.submitted[-1].sampling.stop_ids == ()
