"""`POST /abort`: a running request ends with what it has, whichever of its names is given."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import openai
import pytest

from helios.server.lifecycle import RequestEvent
from helios.worker.messages import Submit, TokensEvent
from tests.server.real import ServerProcess
from tests.server.scripted import RunningServer, running_server, says

CHAT = {"model": "sample", "messages": [{"role": "user", "content": "hello"}]}
COMPLETION = {"model": "sample", "prompt": "hello"}
PATHS: dict[str, dict[str, Any]] = {"/v1/chat/completions": CHAT, "/v1/completions": COMPLETION}
both = pytest.mark.parametrize("path", list(PATHS))


async def _says_hello_and_waits(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
    yield TokensEvent(submit.request_id, [100], [-0.5], 0)
    await asyncio.Event().wait()


def abort(server: RunningServer | ServerProcess, request_id: str) -> httpx.Response:
    return server.http.post("/abort", json={"request_id": request_id})


def whole_answer(
    server: RunningServer, path: str, request_id: str, body: dict[str, Any]
) -> httpx.Response:
    """The answer to a request that is aborted once all its choices run."""
    answers: list[httpx.Response] = []

    def ask() -> None:
        headers = {"x-request-id": request_id}
        answers.append(httpx.post(server.url + path, json=body, headers=headers, timeout=60))

    asking = threading.Thread(target=ask)
    asking.start()
    server.client.wait_until(lambda: server.client.running == body.get("n", 1))
    aborted = abort(server, request_id)
    assert (aborted.status_code, aborted.json()) == (200, {"request_id": request_id})
    asking.join()
    return answers[0]


@pytest.mark.clause("FRONT-15")
@both
def test_a_whole_answer_ends_with_what_it_has(path: str) -> None:
    with running_server(_says_hello_and_waits) as server:
        answer = whole_answer(server, path, "mine", PATHS[path] | {"n": 3})
        assert answer.status_code == 200
        said = answer.json()
        assert [choice["finish_reason"] for choice in said["choices"]] == ["abort"] * 3
        assert said["usage"]["completion_tokens"] >= 0
        gone = abort(server, "mine")
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "request_not_found")
        assert server.metrics()["flare_http_permits"] == 0


@pytest.mark.clause("FRONT-15")
@both
def test_a_stream_ends_well_by_its_answers_id(path: str) -> None:
    body = PATHS[path] | {"stream": True, "stream_options": {"include_usage": True}}
    with (
        running_server(_says_hello_and_waits) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
        client.stream("POST", path, json=body) as response,
    ):
        lines = (line for line in response.iter_lines() if line)
        identity = json.loads(next(lines).removeprefix("data: "))["id"]
        assert abort(server, identity).status_code == 200
        *chunks, done = [line.removeprefix("data: ") for line in lines]
        assert done == "[DONE]"
        finished, usage = map(json.loads, chunks[-2:])
        assert finished["choices"][0]["finish_reason"] == "abort"
        assert usage["usage"]["completion_tokens"] <= 1
        assert abort(server, identity).status_code == 404


def test_a_request_that_is_still_prepared_is_never_submitted() -> None:
    with running_server(says("hello")) as server:
        model = server.lifecycle.model
        assert model is not None
        free = threading.Event()
        model.preparation.submit(free.wait)  # the only slot is taken
        answers: list[httpx.Response] = []
        headers = {"x-request-id": "early"}
        asking = threading.Thread(
            target=lambda: answers.append(
                httpx.post(
                    server.url + "/v1/completions",
                    json=COMPLETION | {"n": 2},
                    headers=headers,
                    timeout=60,
                )
            )
        )
        asking.start()
        try:
            # It comes in on another thread; asked for over and over.
            assert any(abort(server, "early").status_code == 200 for _ in range(20_000))
        finally:
            free.set()
            asking.join()
        (answer,) = answers
        assert [c["finish_reason"] for c in answer.json()["choices"]] == ["abort", "abort"]
        assert answer.json()["usage"]["completion_tokens"] == 0
        assert server.client.submitted == []


def test_one_name_for_several_requests_ends_all_of_them() -> None:
    with running_server(_says_hello_and_waits) as server:
        answers: list[httpx.Response] = []

        def ask(name: str) -> None:
            headers = {"x-request-id": name}
            url = server.url + "/v1/completions"
            answers.append(httpx.post(url, json=COMPLETION, headers=headers, timeout=60))

        asking = [threading.Thread(target=ask, args=(n,)) for n in ("batch", "batch", "other")]
        for thread in asking:
            thread.start()
        server.client.wait_until(lambda: server.client.running == 3)
        assert abort(server, "batch").status_code == 200
        server.client.wait_until(lambda: server.client.running == 1)
        assert abort(server, "other").status_code == 200
        for thread in asking:
            thread.join()
        assert [a.json()["choices"][0]["finish_reason"] for a in answers] == ["abort"] * 3


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({}, "request_id", "missing_field"),
        ({"request_id": 3}, "request_id", "invalid_type"),
        ({"request_id": None}, "request_id", "invalid_type"),
    ],
)
def test_what_abort_refuses(body: dict[str, Any], param: str, code: str) -> None:
    with running_server(says("x")) as server:
        error = server.http.post("/abort", json=body).json()["error"]
        assert (error["param"], error["code"]) == (param, code)
        unknown = server.http.post("/abort", json={"request_id": "nobody", "zebra": 1})
        assert unknown.status_code == 404


def test_a_real_request_is_aborted_and_its_slot_is_free(real_server: ServerProcess) -> None:
    """As the OpenAI client sees it, over a model that would go on for long."""
    with openai.OpenAI(base_url=f"{real_server.url}/v1", api_key="none") as client:
        stream = client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "hello"}],
            max_tokens=400,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True},
        )
        first = next(iter(stream))
        assert abort(real_server, first.id).status_code == 200
        rest = list(stream)
        finishes = [c.finish_reason for chunk in rest for c in chunk.choices if c.finish_reason]
        assert finishes == ["abort"]
        assert rest[-1].usage is not None
        assert rest[-1].usage.completion_tokens < 400
    real_server.metrics_until(
        lambda m: not m["flare_requests_running"] and not m["flare_http_permits"]
    )
