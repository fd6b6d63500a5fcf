"""How the server ends: answers finish, or end with an error that a client can read."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from helios.server.http_server import EndTimes
from helios.server.lifecycle import RequestEvent
from helios.worker.messages import Finish, Submit, TokensEvent
from tests.server.real import COMMAND, DEADLINE_S, NAMESPACE, ServerProcess
from tests.server.scripted import RunningServer, running_server, says

PATH = "/v1/completions"
BODY: dict[str, Any] = {"model": "sample", "prompt": "hello"}
STREAM = BODY | {"stream": True}
LONG = EndTimes(answers=600.0, delivery=0.5)


@contextmanager
def _waiting_server(times: EndTimes) -> Iterator[RunningServer]:
    """Each request gets one token, then nothing until all are cancelled."""

    async def waits(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
        yield TokensEvent(submit.request_id, [100], [-0.5], 0)
        await server.client.cancelling.wait()
        yield TokensEvent(submit.request_id, [], [], Finish.CANCELLED)

    with running_server(waits, times=times) as server:
        yield server


def _ask(server: RunningServer, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(server.url + PATH, json=body, timeout=DEADLINE_S)


def _expect_typed_ends(whole: httpx.Response, stream: httpx.Response) -> None:
    assert whole.status_code == 503
    assert whole.json()["error"]["code"] == "cancelled"
    events = [line for line in stream.text.split("\n") if line]
    assert json.loads(events[-1].removeprefix("data: "))["error"]["code"] == "cancelled"
    assert sum("error" in event for event in events) == 1


@pytest.mark.parametrize("times", [EndTimes(answers=0.05, delivery=0.5), LONG])
def test_answers_that_outlast_the_drain_end_with_a_typed_error(
    times: EndTimes, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        _waiting_server(times) as server,
        ThreadPoolExecutor(2) as pool,
    ):
        whole, stream = (pool.submit(_ask, server, body) for body in (BODY, STREAM))
        server.client.wait_until(lambda: server.client.running == 2)
        server.stop()
        if times is LONG:
            assert server.http.get("/ready").json()["reason"] == "draining"
            server.stop()  # in a hurry
        _expect_typed_ends(whole.result(), stream.result())
    assert capfd.readouterr().err == ""


def test_while_it_drains_the_listener_answers(capfd: pytest.CaptureFixture[str]) -> None:
    with (
        _waiting_server(LONG) as server,
        server.http.stream("POST", PATH, json=STREAM) as response,
        httpx.Client(base_url=server.url, timeout=DEADLINE_S) as other,
    ):
        lines = response.iter_lines()
        next(lines)
        server.stop()
        ready = other.get("/ready")
        while ready.status_code == 200:  # the signal is on its way
            ready = other.get("/ready")
        assert (ready.status_code, ready.json()["reason"]) == (503, "draining")
        assert other.get("/health").status_code == 200
        refused = other.post(PATH, json=BODY)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        response.close()  # the last reader goes, so the drain is over
    assert capfd.readouterr().err == ""


def test_a_reader_that_takes_nothing_is_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    async def floods(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
        while True:
            yield TokensEvent(submit.request_id, [100] * 1000, [-0.5] * 1000, 0)
            await asyncio.sleep(0)

    with (
        running_server(floods, times=EndTimes(answers=0.05, delivery=0.05)) as server,
        socket.socket() as reader,
    ):
        address = httpx.URL(server.url)
        reader.connect((address.host, address.port))
        payload = json.dumps(STREAM).encode()
        head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(payload)}\r\n\r\n"
        reader.sendall(head.encode() + payload)
        server.client.wait_until(lambda: server.client.running == 1)
        server.stop()
        server.client.wait_until(lambda: server.client.running == 0)
    assert capfd.readouterr().err == ""


def test_a_client_that_leaves_within_its_body_is_counted_and_no_failure(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with running_server(says("hello")) as server:
        address = httpx.URL(server.url)
        with socket.create_connection((address.host, address.port)) as connection:
            connection.sendall(
                f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{{".encode()
            )
        for _ in range(1000):  # it is noticed in another thread
            if server.metrics()["flare_http_disconnects_total"]:
                break
        assert server.metrics()["flare_http_disconnects_total"] == 1
    assert capfd.readouterr().err == ""


@contextmanager
def _stuck_server(core: Path) -> Iterator[tuple[ServerProcess, ThreadPoolExecutor]]:
    """A server process whose worker has stopped; standard error goes to a pipe."""
    command = [*COMMAND, "serve", str(core), "--accept", NAMESPACE, "--port", "0", "--threads", "1"]
    command.append("--no-access-log")
    with (
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process,
        ThreadPoolExecutor(2) as pool,
    ):
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            ready = process.stdout.readline()
            assert ready.startswith("ready: ")
            with httpx.Client(base_url=url, timeout=DEADLINE_S) as http:
                yield ServerProcess(process, url, http, ready), pool
        finally:
            process.kill()


def test_a_stuck_worker_keeps_neither_metrics_nor_the_end_from_coming(core_folder: Path) -> None:
    with _stuck_server(core_folder) as (server, pool):
        worker = server.worker_pid()
        signal_process = server.process.send_signal
        subprocess.run(["kill", "-STOP", str(worker)], check=True)
        body = {"model": "tiny", "prompt": "hello", "max_tokens": 400}

        def ask(stream: bool) -> httpx.Response:
            return httpx.post(server.url + PATH, json=body | {"stream": stream}, timeout=DEADLINE_S)

        whole, stream = (pool.submit(ask, streamed) for streamed in (False, True))
        metrics = server.metrics_until(lambda now: now["flare_http_permits"] == 2)
        assert metrics["flare_ready"] == 1
        assert "flare_requests_running" not in metrics
        signal_process(signal.SIGTERM)
        while server.http.get("/ready").status_code == 200:
            pass
        signal_process(signal.SIGTERM)
        _expect_typed_ends(whole.result(), stream.result())
        assert server.process.wait(DEADLINE_S) == 0
        assert server.process.stderr is not None
        assert server.process.stderr.read() == ""
        assert not Path(f"/proc/{worker}").exists()
