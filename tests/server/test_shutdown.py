"""The server's end as an operator sees it: a process, its signals, its worker, its clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from helios.server.http_server import EndTimes
from helios.server.lifecycle import RequestEvent
from helios.worker.messages import Submit, TokensEvent
from tests.server.real import DEADLINE_S, ServerProcess, server_process
from tests.server.scripted import running_server, says

PATH = "/v1/completions"
BODY: dict[str, Any] = {"model": "tiny", "prompt": "hello", "max_tokens": 8}


@contextlib.contextmanager
def _server(core: Path, *options: str) -> Iterator[ServerProcess]:
    with server_process(core, "--threads", "1", "--no-access-log", *options) as server:
        yield server


def _ask(server: ServerProcess, stream: bool = False) -> httpx.Response:
    return httpx.post(server.url + PATH, json=BODY | {"stream": stream}, timeout=DEADLINE_S)


def _drains(server: ServerProcess) -> None:
    """Returns once the server says so, which is at once after a signal."""
    ready = server.http.get("/ready")
    while ready.status_code == 200:
        ready = server.http.get("/ready")
    assert ready.json()["reason"] == "draining"


def _worker_pid(server: ServerProcess) -> int:
    """The model worker among the processes that this one has started."""
    pid = server.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (worker,) = (
        int(child)
        for child in children
        if "helios.worker" in Path(f"/proc/{child}/cmdline").read_text().split("\0")
    )
    return worker


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_running_requests_finish_within_the_shutdown_timeout(core_folder: Path) -> None:
    """The worker stands still meanwhile, so they can't finish before the signal."""
    with (
        _server(core_folder, "--shutdown-timeout", "600") as server,
        ThreadPoolExecutor(6) as pool,
    ):
        worker = _worker_pid(server)
        os.kill(worker, signal.SIGSTOP)
        answers = [pool.submit(_ask, server, stream) for stream in (False, True) * 3]
        server.metrics_until(lambda now: now["flare_http_permits"] == 6)
        server.process.send_signal(signal.SIGTERM)
        _drains(server)
        refused = server.http.post(PATH, json=BODY)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        assert server.http.get("/health").status_code == 200
        os.kill(worker, signal.SIGCONT)
        for answer in answers:
            assert answer.result().status_code == 200
            assert "[DONE]" in answer.result().text or answer.result().json()["usage"]
        assert server.process.wait(DEADLINE_S) == 0
        assert not _exists(worker)


def test_running_requests_of_all_http_processes_finish(core_folder: Path) -> None:
    options = ("--shutdown-timeout", "600", "--http-workers", "2")
    body = BODY | {"max_tokens": 400, "ignore_eos": True, "stream": True}
    with _server(core_folder, *options) as server, contextlib.ExitStack() as streams:
        assert server.process.stdout is not None
        assert "2 of 2" in server.process.stdout.readline()
        begun = []
        for _ in range(8):
            client = streams.enter_context(httpx.Client(base_url=server.url, timeout=DEADLINE_S))
            response = streams.enter_context(client.stream("POST", PATH, json=body))
            begun.append(response.iter_lines())
            next(begun[-1])
        server.process.send_signal(signal.SIGTERM)
        for lines in begun:
            assert [line for line in lines if line][-1] == "data: [DONE]"
        assert server.process.wait(DEADLINE_S) == 0


@pytest.mark.clause("HTTP-6")
def test_connections_are_drained_for_five_seconds_and_then_dropped(core_folder: Path) -> None:
    """Nothing but the drain's own time ends it: a client never sends the rest of its body, the
    worker stands still. The device's owner outlives the connections."""
    times = EndTimes.after(0)
    assert times.answers + times.delivery == 5
    with _server(core_folder) as server, ThreadPoolExecutor(2) as pool:
        worker = _worker_pid(server)
        os.kill(worker, signal.SIGSTOP)
        answers = [pool.submit(_ask, server, stream) for stream in (False, True)]
        url = httpx.URL(server.url)
        with socket.create_connection((url.host, url.port), timeout=DEADLINE_S) as unfinished:
            unfinished.sendall(
                f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{{".encode()
            )
            server.metrics_until(lambda now: now["flare_http_permits"] == 2)
            server.process.send_signal(signal.SIGTERM)
            _drains(server)
            with contextlib.suppress(ConnectionResetError):
                assert unfinished.recv(100) == b""
        whole, stream = (answer.result() for answer in answers)
        assert (whole.status_code, whole.json()["error"]["code"]) == (503, "cancelled")
        assert '"cancelled"' in stream.text
        assert "[DONE]" not in stream.text
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.url + "/ready")
        assert _exists(worker)
        assert server.process.poll() is None
        os.kill(worker, signal.SIGCONT)
        assert server.process.wait(DEADLINE_S) == 0
        assert not _exists(worker)


def test_a_second_signal_hurries_the_end_and_the_worker(core_folder: Path) -> None:
    with (
        _server(core_folder, "--shutdown-timeout", "600") as server,
        ThreadPoolExecutor(1) as pool,
    ):
        worker = _worker_pid(server)
        os.kill(worker, signal.SIGSTOP)
        answer = pool.submit(_ask, server)
        server.metrics_until(lambda now: now["flare_http_permits"] == 1)
        server.process.send_signal(signal.SIGINT)
        _drains(server)
        server.process.send_signal(signal.SIGTERM)
        assert answer.result().json()["error"]["code"] == "cancelled"
        assert server.process.wait(DEADLINE_S) == 0
        assert not _exists(worker)


# ---------------------------------------------------------------- one process, scripted


def test_a_reader_that_comes_late_within_the_drain_has_its_whole_answer() -> None:
    """The answer is finished when the signal comes; its reader has taken nothing yet."""
    text = "many words " * 5000
    times = EndTimes(answers=600.0, delivery=0.5)
    with running_server(says(text), times=times, send_buffer_nbytes=4096) as server:
        url = httpx.URL(server.url)
        with socket.create_connection((url.host, url.port), timeout=DEADLINE_S) as reader:
            payload = json.dumps({"model": "sample", "prompt": "hello", "max_tokens": 200}).encode()
            head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
            reader.sendall(f"{head}content-length: {len(payload)}\r\n\r\n".encode() + payload)
            server.client.wait_until(lambda: len(server.client.submitted) == 1)
            server.client.wait_until(lambda: server.client.running == 0)
            server.stop()
            received = b""
            while piece := reader.recv(1 << 16):
                received += piece
    head_bytes, _, body = received.partition(b"\r\n\r\n")
    assert head_bytes.startswith(b"HTTP/1.1 200 ")
    assert json.loads(body)["choices"][0]["finish_reason"]


def test_a_signal_while_loading_ends_at_once() -> None:
    with running_server(says("hello"), loaded=False, times=EndTimes(600.0, 0.5)) as server:
        assert server.http.get("/ready").status_code == 503
        server.stop()
        while True:
            try:
                assert server.http.get("/ready").status_code == 503
            except httpx.HTTPError:
                break


async def _waits(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
    yield TokensEvent(submit.request_id, [100], [-0.5], 0)
    await asyncio.Event().wait()


def test_answers_that_nothing_ends_are_dropped() -> None:
    """The worker doesn't even say that they are cancelled."""
    with (
        running_server(_waits, times=EndTimes(answers=0.05, delivery=0.05)) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        body = {"model": "sample", "prompt": "hello"}
        answer = pool.submit(httpx.post, server.url + PATH, json=body, timeout=DEADLINE_S)
        server.client.wait_until(lambda: server.client.running == 1)
        server.stop()
        with pytest.raises(httpx.HTTPError):
            answer.result()
        server.client.wait_until(lambda: server.client.running == 0)
