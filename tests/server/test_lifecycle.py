"""Permits, clients that go away, worker failures, readiness: the server's states."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from helios.errors import CoreError, ExecutionError
from helios.server.lifecycle import RequestEvent
from helios.version import VERSION
from helios.worker.messages import FailedEvent, Finish, RejectedEvent, Submit, TokensEvent
from tests.server.scripted import RunningServer, Script, running_server, says, served_model

CHAT_PATH, COMPLETION_PATH = "/v1/chat/completions", "/v1/completions"
BODIES: dict[str, dict[str, Any]] = {
    CHAT_PATH: {"model": "sample", "messages": [{"role": "user", "content": "hello"}]},
    COMPLETION_PATH: {"model": "sample", "prompt": "hello"},
}
both = pytest.mark.parametrize("path", list(BODIES))


async def _says_one_and_waits(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
    """One token, then nothing until somebody goes away."""
    yield TokensEvent(submit.request_id, [100], [-0.5], 0)
    await asyncio.Event().wait()


async def _rejects(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
    yield RejectedEvent(submit.request_id, "the prompt needs more pages than there are")


async def _fails(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
    yield TokensEvent(submit.request_id, [100], [-0.5], 0)
    yield FailedEvent(submit.request_id, "decode.b1 failed")


async def _dies(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
    yield TokensEvent(submit.request_id, [100], [-0.5], 0)
    raise ExecutionError("the worker has ended", where="worker")


async def _stops_short(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
    yield TokensEvent(submit.request_id, [100], [-0.5], 0)


async def _is_cancelled(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
    yield TokensEvent(submit.request_id, [], [], Finish.CANCELLED)


async def _is_failed(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
    yield TokensEvent(submit.request_id, [], [], Finish.FAILED)


async def _garbles(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
    """An end that nobody knows."""
    yield TokensEvent(submit.request_id, [100], [-0.5], 0)
    yield TokensEvent(submit.request_id, [101], [-0.5], 99)


async def _rejects_like_a_failure(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
    yield RejectedEvent(submit.request_id, "500: execution failed, ExecutionError")


async def _fails_like_a_rejection(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
    yield FailedEvent(submit.request_id, "503: not admitted, AdmissionError, try again later")


FAILURES: list[tuple[Script, int, str]] = [
    (_rejects, 503, "not_admitted"),
    (_fails, 500, "execution_failed"),
    (_dies, 500, "model_failed"),
    (_stops_short, 500, "execution_failed"),
    (_is_cancelled, 503, "cancelled"),
    (_is_failed, 500, "execution_failed"),
    (_garbles, 500, "internal_error"),
    (_rejects_like_a_failure, 503, "not_admitted"),
    (_fails_like_a_rejection, 500, "execution_failed"),
]


@pytest.mark.clause("HTTP-7")
@both
@pytest.mark.parametrize(("script", "status", "code"), FAILURES)
def test_failures_have_a_status(path: str, script: Script, status: int, code: str) -> None:
    with running_server(script) as server:
        response = server.http.post(path, json=BODIES[path])
        assert response.status_code == status
        assert response.json()["error"]["code"] == code
        server.client.script = says("hello")
        assert server.http.post(path, json=BODIES[path]).status_code == 200


@pytest.mark.clause("HTTP-7")
@both
@pytest.mark.parametrize(("script", "status", "code"), FAILURES)
def test_failures_end_a_stream_with_one_error_event(
    path: str, script: Script, status: int, code: str
) -> None:
    with running_server(script) as server:
        response = server.http.post(path, json=BODIES[path] | {"stream": True})
        assert response.status_code == 200
        events = [json.loads(e.removeprefix("data: ")) for e in response.text.split("\n\n")[:-1]]
        assert events[-1]["error"]["code"] == code
        assert not any("error" in event for event in events[:-1])
        server.client.script = says("hello")
        assert server.http.post(path, json=BODIES[path]).status_code == 200


@pytest.mark.clause("HTTP-3")
@both
def test_a_client_that_leaves_a_stream_cancels_its_request(path: str) -> None:
    with running_server(_says_one_and_waits) as server:
        body = BODIES[path] | {"stream": True}
        with server.http.stream("POST", path, json=body) as response:
            lines = response.iter_lines()
            next(lines)
            server.client.wait_until(lambda: server.client.running == 1)
        _expect_cancelled(server)


@pytest.mark.clause("HTTP-3")
@both
def test_a_client_that_leaves_while_it_waits_cancels_its_request(path: str) -> None:
    with running_server(_says_one_and_waits) as server:
        payload = json.dumps(BODIES[path]).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(payload)}\r\n\r\n"
        address = httpx.URL(server.url)
        with socket.create_connection((address.host, address.port)) as connection:
            connection.sendall(head.encode() + payload)
            server.client.wait_until(lambda: server.client.running == 1)
        _expect_cancelled(server)


def _expect_cancelled(server: RunningServer) -> None:
    server.client.wait_until(lambda: server.client.cancelled == 1)
    assert server.client.running == 0
    with httpx.Client(base_url=server.url) as fresh:
        server.client.script = says("hello")
        path = COMPLETION_PATH
        assert fresh.post(path, json=BODIES[path], timeout=60).status_code == 200
    samples = server.metrics()
    assert samples["flare_http_permits"] == 0
    assert samples["flare_http_disconnects_total"] == 1


@pytest.mark.clause("HTTP-1")
def test_permits_bound_the_requests_in_flight() -> None:
    with running_server(_says_one_and_waits, permits=2) as server, ExitStack() as streams:
        body = BODIES[CHAT_PATH] | {"stream": True}
        lines = []  # dropping a line iterator would close its connection
        for _ in range(2):
            client = streams.enter_context(httpx.Client(base_url=server.url, timeout=60))
            response = streams.enter_context(client.stream("POST", CHAT_PATH, json=body))
            lines.append(response.iter_lines())
            next(lines[-1])
        refused = server.http.post(CHAT_PATH, json=body)
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["code"] == "queue_full"
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert server.metrics()["flare_http_permits"] == 2
        streams.close()
        server.client.wait_until(lambda: server.client.running == 0)
        server.client.script = says("hello")
        assert server.http.post(CHAT_PATH, json=BODIES[CHAT_PATH]).status_code == 200
        assert server.metrics()["flare_http_refused_total"] == 1


def test_many_clients_at_once_get_their_own_answers() -> None:
    async def repeats_the_prompt(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
        for token in submit.prompt_tokens:
            yield TokensEvent(submit.request_id, [token], [-0.5], 0)
            await asyncio.sleep(0)
        yield TokensEvent(submit.request_id, [2], [-0.5], Finish.EOS)

    def ask(number: int) -> str:
        body = {"model": "sample", "prompt": f"number {number}"}
        response = httpx.post(server.url + COMPLETION_PATH, json=body, timeout=60)
        return str(response.json()["choices"][0]["text"])

    with running_server(repeats_the_prompt, permits=32) as server, ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(ask, range(64)))
    assert answers == [f"number {number}" for number in range(64)]


def test_before_the_model_is_there() -> None:
    with running_server(says("hello"), loaded=False) as server:
        assert server.http.get("/health").status_code == 200
        ready = server.http.get("/ready")
        assert (ready.status_code, ready.json()["reason"]) == (503, "loading_core")
        server.lifecycle.core_opened()
        assert server.http.get("/ready").json()["reason"] == "loading_model"
        for path, body in BODIES.items():
            refused = server.http.post(path, json=body)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "loading_model"
            assert refused.headers["retry-after"] == "1"
        assert server.http.get("/v1/models").status_code == 503
        assert server.http.get("/version").json() == {
            "version": VERSION, "core": None, "kernel_path": None,
        }  # fmt: skip
        assert server.metrics()["flare_ready"] == 0
        server.lifecycle.mark("worker")
        server.lifecycle.serve(served_model(server.client))
        ready = server.http.get("/ready")
        assert (ready.status_code, ready.json()["ready"]) == (200, True)
        assert "worker" in ready.json()["startup_ms"]


def test_while_it_drains() -> None:
    with running_server(says("hello")) as server:
        server.lifecycle.drain()
        ready = server.http.get("/ready")
        assert (ready.status_code, ready.json()["reason"]) == (503, "draining")
        refused = server.http.post(COMPLETION_PATH, json=BODIES[COMPLETION_PATH])
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        assert server.http.get("/health").status_code == 200


def test_a_dead_worker_is_unhealthy() -> None:
    with running_server(says("hello")) as server:
        server.client.failure = ExecutionError("the worker has ended", where="worker")
        health = server.http.get("/health")
        assert (health.status_code, health.json()["status"]) == (500, "failed")
        assert "the worker has ended" in health.json()["message"]
        assert server.http.get("/ready").json()["reason"] == "failed"
        refused = server.http.post(COMPLETION_PATH, json=BODIES[COMPLETION_PATH])
        assert (refused.status_code, refused.json()["error"]["code"]) == (500, "model_failed")
        assert server.metrics()["flare_ready"] == 0


def test_a_worker_with_broken_books_is_unhealthy_and_answers() -> None:
    with running_server(says("hello")) as server:
        server.client.unsound = "the scheduler's books don't agree: a page is lost"
        health = server.http.get("/health")
        assert (health.status_code, health.json()["status"]) == (500, "unsound")
        assert "a page is lost" in health.json()["message"]
        assert server.http.get("/ready").status_code == 200
        answer = server.http.post(COMPLETION_PATH, json=BODIES[COMPLETION_PATH])
        assert answer.status_code == 200


def test_failing_to_start_is_unhealthy_and_stays_so() -> None:
    with running_server(says("hello"), loaded=False) as server:
        server.lifecycle.fail(CoreError("not accepted", where="core"))
        server.lifecycle.serve(served_model(server.client))
        server.lifecycle.drain()
        assert server.http.get("/health").status_code == 500
        assert server.http.get("/ready").json()["reason"] == "failed"


def test_models_are_listed_with_their_aliases() -> None:
    with running_server(says("hello")) as server:
        listed = server.http.get("/v1/models").json()
        assert listed["object"] == "list"
        assert [model["id"] for model in listed["data"]] == ["sample", "sample-alias"]
        assert listed["data"][0]["owned_by"] == "tests"
        assert listed["data"][0]["max_context_tokens"] == 256
        assert server.http.get("/v1/models/sample-alias").json() == listed["data"][1]


def test_version_names_core_and_kernels() -> None:
    with running_server(says("hello")) as server:
        assert server.http.get("/version").json() == {
            "version": VERSION,
            "core": "0123456789abcdef",
            "kernel_path": "cpu/portable",
        }
