"""Stops and observation in a real server over a real core, by the OpenAI SDK and by raw events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai import OpenAI

from tests.server.real import DEADLINE_S, ServerProcess

PATH = "/v1/chat/completions"
TIMED = {"return_token_ids": True, "return_token_timestamps": True}


def sdk(server: ServerProcess) -> OpenAI:
    return OpenAI(base_url=server.url + "/v1", api_key="none", timeout=DEADLINE_S, max_retries=0)


def body(**more: Any) -> dict[str, Any]:
    question = [{"role": "user", "content": "Where does an answer end?"}]
    return {"model": "tiny", "messages": question, "max_tokens": 40, "seed": 11} | more


def post(server: ServerProcess, **more: Any) -> Any:
    response = server.http.post(PATH, json=body(**more))
    assert response.status_code == 200, response.text
    return response.json()


def events(server: ServerProcess, **more: Any) -> list[Any]:
    response = server.http.post(PATH, json=body(stream=True, **more))
    assert response.status_code == 200, response.text
    *frames, done = [line[6:] for line in response.text.splitlines() if line]
    assert done == "[DONE]"
    return [json.loads(frame) for frame in frames]


@pytest.fixture(scope="module")
def unstopped(real_server: ServerProcess) -> Any:
    """The whole answer, with its ids."""
    return post(real_server, **TIMED)


@pytest.mark.clause("STOP-1", "STOP-2", "STOP-5")
@pytest.mark.parametrize("place", [0, 1, 3, 8])
def test_the_sdks_stop_cuts_the_text_and_counts_the_token_that_crosses_it(
    real_server: ServerProcess, unstopped: Any, place: int
) -> None:
    text = unstopped["choices"][0]["message"]["content"]
    ids = unstopped["choices"][0]["token_ids"]
    stop = text[place : place + 3]
    expected = text[: text.index(stop)]
    client = sdk(real_server)
    answer = client.chat.completions.create(**body(stop=[stop, "\u2603"]))
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content == expected
    observed = post(real_server, stop=stop, return_token_ids=True)
    got = observed["choices"][0]["token_ids"]
    assert got == ids[: len(got)]
    assert len(got) < len(ids)
    assert observed["usage"]["completion_tokens"] == len(got)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(got)
    chunks = list(client.chat.completions.create(**body(stop=stop), stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == expected
    assert chunks[-1].choices[0].finish_reason == "stop"


@pytest.mark.clause("STOP-1", "STOP-3")
def test_a_stop_that_never_comes_changes_nothing(
    real_server: ServerProcess, unstopped: Any
) -> None:
    text = unstopped["choices"][0]["message"]["content"]
    stops: list[Any] = ["\u2603", text[-2:] + "\u2603", [], None]
    for stop in stops:
        choice = post(real_server, stop=stop)["choices"][0]
        assert choice["message"]["content"] == text
        assert choice["finish_reason"] == unstopped["choices"][0]["finish_reason"]


@pytest.mark.clause("STOP-1")
def test_completions_stop_too(real_server: ServerProcess) -> None:
    client = sdk(real_server)
    options: dict[str, Any] = {"model": "tiny", "prompt": "hello", "max_tokens": 30, "seed": 2}
    whole = client.completions.create(**options).choices[0].text
    stopped = client.completions.create(**options, stop=whole[4:6]).choices[0]
    assert (stopped.text, stopped.finish_reason) == (whole[: whole.index(whole[4:6])], "stop")


@pytest.mark.clause("STOP-6", "OBS-1")
@pytest.mark.parametrize("length", [1, 2, 5])
def test_stop_tokens_are_hidden_and_observed(
    real_server: ServerProcess, unstopped: Any, length: int
) -> None:
    ids = unstopped["choices"][0]["token_ids"]
    sequence = ids[6 : 6 + length]
    end = next(i + length for i in range(len(ids)) if ids[i : i + length] == sequence)
    stops: dict[str, Any] = {"stop_token_sequences": [sequence]}
    if length == 1:
        stops = {"stop_token_ids": sequence}
    answer = post(real_server, return_token_ids=True, **stops)
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["token_ids"] == ids[:end]
    assert answer["usage"]["completion_tokens"] == end
    shown = post(real_server, max_tokens=end - length) if end > length else None
    text = shown["choices"][0]["message"]["content"] if shown else ""
    assert choice["message"]["content"] == text
    streamed = events(real_server, return_token_ids=True, **stops)
    choices = [c for chunk in streamed for c in chunk["choices"]]
    assert [i for c in choices for i in c.get("token_ids", [])] == ids[:end]
    assert "".join(c["delta"].get("content", "") for c in choices) == text


@pytest.mark.clause("OBS-1", "OBS-2", "OBS-3")
def test_times_rise_from_the_way_in_to_the_last_token(unstopped: Any) -> None:
    choice, performance = unstopped["choices"][0], unstopped["performance"]
    times = choice["token_timestamps_ns"]
    assert len(times) == len(choice["token_ids"]) == unstopped["usage"]["completion_tokens"]
    way = [0, performance["ingress_ns"], performance["enqueue_ns"], *times]
    assert way == sorted(way)
    assert len(set(times)) == len(times), "each token had its own round"
    assert len(unstopped["prompt_token_ids"]) == unstopped["usage"]["prompt_tokens"]


@pytest.mark.clause("OBS-3")
def test_what_was_reused_is_told(real_server: ServerProcess, unstopped: Any) -> None:
    again = post(real_server, **TIMED)
    assert again["choices"][0]["token_ids"] == unstopped["choices"][0]["token_ids"]
    assert again["prompt_token_ids"] == unstopped["prompt_token_ids"]
    reused = again["reused_prompt_tokens"]
    assert again["performance"]["reused_prompt_tokens"] == reused
    assert 0 < reused < len(again["prompt_token_ids"])


@pytest.mark.clause("STOP-5", "OBS-1")
def test_the_sdk_reads_what_is_observed(real_server: ServerProcess, unstopped: Any) -> None:
    answer = sdk(real_server).chat.completions.create(**body(), extra_body=TIMED)
    assert answer.model_extra is not None
    assert answer.model_extra["prompt_token_ids"] == unstopped["prompt_token_ids"]
    more = answer.choices[0].model_extra
    assert more is not None
    assert more["token_ids"] == unstopped["choices"][0]["token_ids"]


@pytest.mark.clause("STOP-4")
def test_others_go_on_beside_a_request_with_stops(
    real_server: ServerProcess, unstopped: Any
) -> None:
    text = unstopped["choices"][0]["message"]["content"]
    with real_server.http.stream(
        "POST", PATH, json=body(stream=True, stop="\u2603", max_tokens=200, seed=3)
    ) as response:
        lines = filter(None, response.iter_lines())
        next(lines)
        assert post(real_server)["choices"][0]["message"]["content"] == text
        assert list(lines)[-1] == "data: [DONE]"
