"""What clients may send and how long they may take: each limit ends in a typed error or a close."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest

from helios.errors import HeliosError
from helios.server.lifecycle import RequestEvent
from helios.server.options import HttpOptions, LimitOptions
from helios.worker.messages import Submit, TokensEvent
from tests.server.scripted import RunningServer, running_server, says

PATH = "/v1/completions"
BODY: dict[str, Any] = {"model": "sample", "prompt": "hello"}
LIMITS = LimitOptions()
DEADLINE_S = 60.0


def _limited(**limits: Any) -> HttpOptions:
    return HttpOptions(limits=replace(LIMITS, **limits))


@contextlib.contextmanager
def _connected(server: RunningServer, *sent: bytes) -> Iterator[socket.socket]:
    url = httpx.URL(server.url)
    with socket.create_connection((url.host, url.port), timeout=DEADLINE_S) as connection:
        for data in sent:
            connection.sendall(data)
        yield connection


def _rest(connection: socket.socket) -> bytes:
    """What comes until the server closes; that it does is the point."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            received += piece
    return received


def _error(response: bytes) -> tuple[int, str]:
    head, _, body = response.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"]


def _post(body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n\r\n".encode() + body


# ---------------------------------------------------------------- heads and bodies that don't come


@pytest.mark.parametrize(
    "sent", [b"P", b"POST /v1/completions HTTP/1.1\r\n", b"GET /ready HTTP/1.1\r\nhost: x\r\n"]
)
def test_half_a_head_is_answered_with_a_408_and_a_close(sent: bytes) -> None:
    with (
        running_server(says("hello"), options=_limited(head_timeout_s=1)) as server,
        _connected(server, sent) as connection,
    ):
        assert _error(_rest(connection)) == (408, "head_timeout")


def test_a_head_that_trickles_gains_no_time() -> None:
    """Each byte alone would be in time."""
    with (
        running_server(says("hello"), options=_limited(head_timeout_s=1)) as server,
        _connected(server, b"GET /ready HTTP/1.1\r\n") as connection,
    ):
        connection.settimeout(0.01)
        received = b""
        while not received:
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"a")
            with contextlib.suppress(TimeoutError):
                received = connection.recv(1 << 16)
        assert received.startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_says_nothing_is_closed_without_a_word() -> None:
    with (
        running_server(says("hello"), options=_limited(head_timeout_s=0.05)) as server,
        _connected(server) as connection,
    ):
        assert _rest(connection) == b""


def test_half_a_body_is_answered_with_a_408_and_a_close() -> None:
    with (
        running_server(says("hello"), options=_limited(body_timeout_s=0.05)) as server,
        _connected(server, _post(b"{", length=1000)) as connection,
    ):
        assert _error(_rest(connection)) == (408, "body_timeout")
        assert server.client.submitted == []
        assert server.metrics()["flare_http_permits"] == 0


def test_a_body_that_nobody_reads_any_more_ends_too() -> None:
    """The refusal is out, and the client goes on sending its body for ever."""
    with (
        running_server(says("hello"), options=_limited(body_timeout_s=0.05)) as server,
        _connected(server, _post(b"x", length=1 << 30)) as connection,
    ):
        assert _error(_rest(connection)) == (413, "body_too_large")


def test_a_client_that_sends_all_of_a_large_body_gets_its_answer_and_may_go_on() -> None:
    with (
        running_server(says("hello"), options=_limited(max_body_nbytes=1000)) as server,
        httpx.Client(base_url=server.url, timeout=DEADLINE_S) as client,
    ):
        for _ in range(3):
            refused = client.post(PATH, content=b"x" * (8 << 20))
            assert (refused.status_code, refused.json()["error"]["code"]) == (413, "body_too_large")
            assert client.post(PATH, json=BODY).status_code == 200


def test_a_chunked_body_is_bounded_as_it_comes() -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 100

    with running_server(says("hello"), options=_limited(max_body_nbytes=1000)) as server:
        refused = server.http.post(PATH, content=pieces())
        assert (refused.status_code, refused.json()["error"]["code"]) == (413, "body_too_large")


def test_an_idle_connection_is_closed_and_a_busy_one_kept() -> None:
    async def slow(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
        await asyncio.sleep(0.2)  # longer than any limit here
        async for event in says("hello")(submit):
            yield event

    options = _limited(keep_alive_s=0.05, body_timeout_s=0.05)
    with (
        running_server(slow, options=options) as server,
        _connected(server, _post(json.dumps(BODY).encode())) as connection,
    ):
        assert _rest(connection).startswith(b"HTTP/1.1 200 ")


# ---------------------------------------------------------------- what is no HTTP


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", (400, "invalid_http")),
        (b"NONSENSE\r\n\r\n", (400, "invalid_http")),
        (b"GET / HTTP/1.1\r\n\r\n", (400, "invalid_http")),
        (b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"b" * 20_000,
         (431, "head_too_large")),
        (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\r\n", (501, "invalid_http")),
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", (400, "invalid_http")),
    ],
)  # fmt: skip
def test_what_is_no_http_gets_a_typed_error(sent: bytes, expected: tuple[int, str]) -> None:
    with running_server(says("hello")) as server, _connected(server, sent) as connection:
        assert _error(_rest(connection)) == expected
        assert server.http.get("/ready").status_code == 200


@pytest.mark.parametrize(
    "head",
    [
        b"POST /health HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n",
        b"POST /health HTTP/1.1\r\nhost: x\r\nTransfer-Encoding: Chunked\r\nContent-Length: 0\r\n",
        b"POST /health HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n",
    ],
)
@pytest.mark.parametrize("first", [b"", b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n"])
def test_a_body_of_two_lengths_ends_its_connection(first: bytes, head: bytes) -> None:
    """What follows may be a part of it, so it is nobody's request."""
    smuggled = b"0\r\n\r\nGET /version HTTP/1.1\r\nhost: x\r\n\r\n"
    with (
        running_server(says("hello")) as server,
        _connected(server, first + head + b"\r\n" + smuggled) as connection,
    ):
        received = _rest(connection)
        assert received.count(b"HTTP/1.1 ") == 1 + bool(first)
        refused = received[received.rindex(b"HTTP/1.1 ") :]
        assert _error(refused) == (400, "invalid_http")
        assert b"connection: close" in refused.lower()
        assert b"ambiguous" in refused
        assert server.http.get("/ready").status_code == 200


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"http://x/ready", 200),
        (b"HTTPS://other.example:8000/ready?a=b", 200),
        (b"http://x", 404),
        (b"http:///ready", 404),
        (b"ftp://x/ready", 404),
        (b"http://x/ready/http://x/ready", 404),
    ],
)
def test_a_target_may_be_a_whole_url(target: bytes, status: int) -> None:
    sent = b"GET " + target + b" HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    with running_server(says("hello")) as server, _connected(server, sent) as connection:
        assert _rest(connection).startswith(b"HTTP/1.1 %d " % status)


def test_a_body_that_breaks_http_ends_its_connection() -> None:
    head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    with (
        running_server(says("hello")) as server,
        _connected(server, head, b"zz\r\n") as connection,
    ):
        assert _error(_rest(connection)) == (400, "invalid_http")


# ---------------------------------------------------------------- connections


def test_connections_over_the_limit_are_told_so_and_probes_still_answered() -> None:
    with contextlib.ExitStack() as held:
        server = held.enter_context(
            running_server(says("hello"), options=_limited(max_connections=2))
        )
        for _ in range(2):
            one = held.enter_context(httpx.Client(base_url=server.url, timeout=DEADLINE_S))
            assert one.get("/ready").status_code == 200
        refused = httpx.post(server.url + PATH, json=BODY, timeout=DEADLINE_S)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "too_many_connections"
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["connection"] == "close"
        assert httpx.get(server.url + "/health", timeout=DEADLINE_S).status_code == 200
        assert one.post(PATH, json=BODY).status_code == 200


def test_far_over_the_limit_connections_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helios.server.connections._RESERVE", 0)
    with running_server(says("hello"), options=_limited(max_connections=1)) as server:
        assert server.http.get("/ready").status_code == 200
        with _connected(server, b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n") as connection:
            assert _rest(connection) == b""
        assert server.http.get("/ready").status_code == 200


# ---------------------------------------------------------------- whole requests


async def _says_one_and_waits(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
    yield TokensEvent(submit.request_id, [100], [-0.5], 0)
    await asyncio.Event().wait()


def test_a_request_that_takes_too_long_ends_with_a_typed_error_and_is_cancelled() -> None:
    with (
        running_server(_says_one_and_waits, options=_limited(request_timeout_s=2)) as server,
        ThreadPoolExecutor(2) as pool,
    ):
        whole, stream = (
            pool.submit(httpx.post, server.url + PATH, json=BODY | more, timeout=DEADLINE_S)
            for more in ({}, {"stream": True, "n": 2})
        )
        assert whole.result().status_code == 504
        assert whole.result().json()["error"]["code"] == "request_timeout"
        events = [line for line in stream.result().text.split("\n") if line]
        assert stream.result().status_code == 200
        last = json.loads(events[-1].removeprefix("data: "))
        assert last["error"]["code"] == "request_timeout"
        assert sum("error" in event for event in events) == 1
        server.client.wait_until(lambda: server.client.running == 0)
        assert server.client.cancelled == 3
        assert server.metrics()["flare_http_permits"] == 0


def test_preparation_counts_too() -> None:
    with running_server(says("hello"), options=_limited(request_timeout_s=2)) as server:
        assert server.lifecycle.model is not None
        blocked = server.lifecycle.model.preparation
        release = threading.Event()
        blocked.submit(release.wait)
        try:
            refused = server.http.post(PATH, json=BODY)
        finally:
            release.set()
        assert (refused.status_code, refused.json()["error"]["code"]) == (504, "request_timeout")
        assert server.client.submitted == []
        assert server.http.post(PATH, json=BODY).status_code == 200


# ---------------------------------------------------------------- readers


async def _floods(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
    while True:
        yield TokensEvent(submit.request_id, [100] * 1000, [-0.5] * 1000, 0)
        await asyncio.sleep(0)


def test_a_reader_that_takes_nothing_is_dropped_where_that_is_asked_for() -> None:
    body = json.dumps(BODY | {"stream": True}).encode()
    with (
        running_server(_floods, options=_limited(write_timeout_s=0.1)) as server,
        _connected(server, _post(body)),
    ):
        server.client.wait_until(lambda: bool(server.client.submitted))
        server.client.wait_until(lambda: server.client.running == 0)
        assert server.client.cancelled == 1


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("field", "option"),
    [
        ("max_body_nbytes", "--max-body-size"),
        ("head_timeout_s", "--head-timeout"),
        ("body_timeout_s", "--body-timeout"),
        ("keep_alive_s", "--keep-alive"),
        ("request_timeout_s", "--request-timeout"),
        ("write_timeout_s", "--write-timeout"),
        ("max_connections", "--max-connections"),
    ],
)
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_limits_that_bound_nothing_are_refused_by_name(
    field: str, option: str, value: float
) -> None:
    with pytest.raises(HeliosError) as refused:
        LimitOptions(**{field: value})
    assert refused.value.where == option
    assert refused.value.remedy


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_a_shutdown_takes_a_time(value: float) -> None:
    with pytest.raises(HeliosError, match="--shutdown-timeout"):
        LimitOptions(shutdown_timeout_s=value)
    assert LimitOptions(shutdown_timeout_s=0).shutdown_timeout_s == 0
