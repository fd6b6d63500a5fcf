"""Token ids, times and totals in answers and streams, over a scripted worker."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from helios.server.observation import Stopwatch
from helios.worker.messages import Finish, Submit, TokensEvent
from tests.frontend.vocabularies import EOS_ID
from tests.server.scripted import FRONTEND, RunningServer, running_server

ANSWER = "héllo wörld"
TOKENS = [*FRONTEND.tokenizer.encode(ANSWER), EOS_ID]
TIMES = [1_000_000 * (i + 1) for i in range(len(TOKENS))]
REUSED = 7
BODY: dict[str, Any] = {"model": "sample", "messages": [{"role": "user", "content": "hello"}]}
PATH = "/v1/chat/completions"
IDS = {"return_token_ids": True}
TIMED = IDS | {"return_token_timestamps": True}


async def script(submit: Submit) -> AsyncGenerator[TokensEvent, None]:
    """Two tokens a round."""
    for begin in range(0, len(TOKENS), 2):
        tokens = TOKENS[begin : begin + 2]
        last = begin + 2 >= len(TOKENS)
        yield TokensEvent(
            submit.request_id,
            tokens,
            [-0.5] * len(tokens),
            Finish.EOS if last else 0,
            completed_ns=TIMES[begin] if submit.timed else 0,
            reused_prompt_tokens=REUSED,
        )


def completed(token: int) -> int:
    """When the script's round of the token at this place was completed."""
    return TIMES[token - token % 2]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server(script) as running:
        yield running


def ask(server: RunningServer, **more: Any) -> Any:
    response = server.http.post(PATH, json=BODY | more)
    assert response.status_code == 200, response.text
    return response.json()


def stream(server: RunningServer, **more: Any) -> list[Any]:
    response = server.http.post(PATH, json=BODY | {"stream": True} | more)
    assert response.status_code == 200, response.text
    frames = response.text.split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]


OBSERVED_FIELDS = {"prompt_token_ids", "reused_prompt_tokens", "performance"}
CHOICE_FIELDS = {"token_ids", "token_timestamps_ns"}


@pytest.mark.clause("OBS-1")
def test_an_answer_has_the_ids_of_prompt_and_output(server: RunningServer) -> None:
    answer = ask(server, **IDS)
    assert answer["prompt_token_ids"] == server.client.submitted[-1].prompt_tokens
    assert answer["choices"][0]["token_ids"] == TOKENS, "with the end-of-sequence token"
    assert answer["choices"][0]["message"]["content"] == ANSWER
    assert "token_timestamps_ns" not in answer["choices"][0]


@pytest.mark.clause("OBS-1")
def test_a_stream_has_the_prompts_ids_first_and_one_chunk_a_token(server: RunningServer) -> None:
    chunks = stream(server, **IDS)
    assert chunks[0]["prompt_token_ids"] == server.client.submitted[-1].prompt_tokens
    assert not any("prompt_token_ids" in chunk for chunk in chunks[1:])
    choices = [chunk["choices"][0] for chunk in chunks]
    observed = [choice for choice in choices if "token_ids" in choice]
    assert [choice["token_ids"] for choice in observed] == [[token] for token in TOKENS]
    for choice in observed:
        assert choice["delta"] == {}
        assert choice["finish_reason"] is None
    text = [choice["delta"].get("content", "") for choice in choices if choice not in observed]
    assert "".join(text) == ANSWER
    assert choices[-1]["finish_reason"] == "stop"
    assert "token_ids" not in choices[-1]


@pytest.mark.clause("OBS-1", "OBS-3")
def test_nothing_is_observed_unasked(server: RunningServer) -> None:
    for more in ({}, dict.fromkeys(TIMED), dict.fromkeys(TIMED, False)):
        answer = ask(server, **more)
        assert not OBSERVED_FIELDS & answer.keys()
        assert not CHOICE_FIELDS & answer["choices"][0].keys()
        submitted = server.client.submitted[-1]
        assert not submitted.observed
        assert not submitted.timed
        for chunk in stream(server, **more):
            assert not OBSERVED_FIELDS & chunk.keys()
            assert not CHOICE_FIELDS & chunk["choices"][0].keys()
            assert "usage" not in chunk


@pytest.mark.clause("OBS-2")
def test_times_are_aligned_with_ids(server: RunningServer) -> None:
    expected = [completed(i) for i in range(len(TOKENS))]
    choice = ask(server, **TIMED)["choices"][0]
    assert choice["token_ids"] == TOKENS
    assert choice["token_timestamps_ns"] == expected
    choices = [chunk["choices"][0] for chunk in stream(server, **TIMED)]
    observed = [choice for choice in choices if "token_ids" in choice]
    assert [choice["token_timestamps_ns"] for choice in observed] == [[time] for time in expected]
    assert not any("token_timestamps_ns" in c for c in choices if c not in observed)


@pytest.mark.clause("OBS-3")
def test_totals_of_an_answer(server: RunningServer) -> None:
    answer = ask(server, **IDS)
    assert answer["reused_prompt_tokens"] == REUSED
    assert answer["usage"]["completion_tokens"] == len(TOKENS)
    assert "performance" not in answer
    performance = ask(server, **TIMED)["performance"]
    assert set(performance) == {"ingress_ns", "enqueue_ns", "reused_prompt_tokens"}
    assert performance["reused_prompt_tokens"] == REUSED
    assert 0 < performance["ingress_ns"] <= performance["enqueue_ns"]


@pytest.mark.clause("OBS-3", "OBS-4")
@pytest.mark.parametrize("fields", [IDS, TIMED])
def test_totals_of_a_stream_are_in_its_last_choice_chunk(
    server: RunningServer, fields: dict[str, bool]
) -> None:
    *chunks, last = stream(server, **fields)
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["usage"]["completion_tokens"] == len(TOKENS)
    assert last["reused_prompt_tokens"] == REUSED
    assert ("performance" in last) == (fields == TIMED)
    for chunk in chunks:
        assert not {"usage", "reused_prompt_tokens", "performance"} & chunk.keys()


@pytest.mark.clause("OBS-4")
@pytest.mark.parametrize("fields", [{}, IDS, TIMED])
def test_asked_usage_is_a_chunk_of_its_own_and_null_before(
    server: RunningServer, fields: dict[str, bool]
) -> None:
    *chunks, last = stream(server, stream_options={"include_usage": True}, **fields)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == len(TOKENS)
    assert {chunk["usage"] for chunk in chunks} == {None}
    assert all(chunk["choices"] for chunk in chunks)
    if fields:
        assert chunks[-1]["reused_prompt_tokens"] == REUSED
    for no in (False, None):
        *_, ending = stream(server, stream_options={"include_usage": no}, **fields)
        assert ending["choices"]
        assert ("usage" in ending) == bool(fields)


def test_logprobs_stay_with_the_text(server: RunningServer) -> None:
    choices = [chunk["choices"][0] for chunk in stream(server, logprobs=True, **IDS)]
    assert all(c["logprobs"] is None for c in choices if "token_ids" in c)
    entries = [entry for c in choices if c["logprobs"] for entry in c["logprobs"]["content"]]
    assert len(entries) == len(TOKENS)


@pytest.mark.clause("OBS-2", "OBS-3")
def test_only_timed_requests_read_the_servers_clock() -> None:
    reads: list[int] = []

    def clock() -> int:
        reads.append(1000 + 10 * len(reads))
        return reads[-1]

    for timed in (False, True):
        watch = Stopwatch(timed=timed, origin_ns=1000, clock=clock)
        watch.came_in()
        watch.queued()
        performance = watch.performance(3)
        assert len(reads) == 2 * timed
    assert performance is not None
    assert (performance.ingress_ns, performance.enqueue_ns) == (0, 10)


@pytest.mark.clause("OBS-3")
def test_a_request_comes_in_before_its_preparation_and_is_queued_after_it(
    server: RunningServer,
) -> None:
    """The one preparation slot is taken until the request waits for it."""
    begun, going_on = threading.Event(), threading.Event()
    preparation = server.lifecycle.serving().preparation

    def occupy() -> int:
        begun.set()
        assert going_on.wait(60)
        return time.monotonic_ns()

    occupied = preparation.submit(occupy)
    assert begun.wait(60)
    permits = "flare_http_permits"
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(ask(server, **TIMED)))
    asking.start()
    while not server.metrics()[permits]:
        pass
    going_on.set()
    asking.join()
    performance = answers[0]["performance"]
    assert performance["ingress_ns"] < occupied.result() <= performance["enqueue_ns"]
