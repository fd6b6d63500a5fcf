"""Lines about requests: what they say, and what they never do; over real processes too."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from helios.errors import CoreError
from helios.log_lines import FIELDS
from helios.server.options import HttpOptions
from helios.worker.messages import Finish
from tests.server.real import COMMAND, DEADLINE_S, NAMESPACE, ServerProcess, run_cli
from tests.server.scripted import running_server, says
from tests.server.test_cli_shown_text import ESCAPES

PATH = "/v1/chat/completions"
SECRET = "a-secret-word"
BODY: dict[str, Any] = {"model": "sample", "messages": [{"role": "user", "content": SECRET}]}


def _lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [getattr(record, FIELDS) for record in caplog.records if hasattr(record, FIELDS)]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="helios")
    return caplog


def test_an_answer_has_a_line(log: pytest.LogCaptureFixture) -> None:
    with running_server(says("hello", reused=3)) as server:
        unknown = {"zeta": 1, "alpha": 2}
        headers = {"x-request-id": "mine", "authorization": f"Bearer {SECRET}"}
        answer = server.http.post(f"{PATH}?key={SECRET}", json=BODY | unknown, headers=headers)
        streamed = server.http.post(PATH, json=BODY | {"stream": True, "n": 2})
    # A line comes a moment after the answer, so two may change places.
    whole, stream = sorted(_lines(log), key=lambda line: len(line["finish"]))
    usage = answer.json()["usage"]
    expected = {
        "client": "127.0.0.1",
        "method": "POST",
        "path": PATH,
        "status": 200,
        "bytes": len(answer.content),
        "answer_id": answer.json()["id"],
        "finish": ("stop",),
        "prompt_tokens": usage["prompt_tokens"],
        "output_tokens": usage["completion_tokens"],
        "ignored": ("alpha", "zeta"),
        "error": None,
        "disconnected": None,
    }
    assert expected.items() <= whole.items()
    assert whole["duration_ms"] > 0
    assert stream["finish"] == ("stop", "stop")
    assert stream["output_tokens"] == 2 * usage["completion_tokens"]
    assert stream["bytes"] >= len(streamed.content)
    assert SECRET not in log.text
    assert SECRET not in str([vars(record) for record in log.records])


def test_all_unknown_fields_are_in_the_log_within_bounds(
    log: pytest.LogCaptureFixture,
) -> None:
    names = [f"f{number:04}" for number in range(500)]
    long = [f"{number:04}" + "x" * 1000 for number in range(500)]
    with running_server(says("hello")) as server:
        server.http.post(PATH, json=BODY | dict.fromkeys(names, 1))
        server.http.post(PATH, json=BODY | dict.fromkeys(long, 1))
    some, bounded = sorted((line["ignored"] for line in _lines(log)), key=len, reverse=True)
    assert list(some) == names
    assert [name[:4] for name in bounded[:-1]] == [name[:4] for name in long[: len(bounded) - 1]]
    assert bounded[-1] == f"+{500 - (len(bounded) - 1)}"
    assert sum(map(len, bounded)) <= 17_000


@pytest.mark.parametrize("stream", [False, True])
def test_failures_and_readers_that_leave_have_one(
    log: pytest.LogCaptureFixture, stream: bool
) -> None:
    body = BODY | {"stream": stream}
    with running_server(says("hello", finish=Finish.FAILED)) as server:
        server.http.post(PATH, json=body)
        server.http.post(PATH, content=b"{")
        url = httpx.URL(server.url)
        with socket.create_connection((url.host, url.port)) as connection:
            connection.sendall(f"POST {PATH} HTTP/1.1\r\nhost: x\r\n".encode())
            connection.sendall(b"content-length: 10\r\n\r\n{")
        while server.metrics()["flare_http_disconnects_total"] == 0:
            pass
    told = {line["error"]: (line["status"], line["disconnected"]) for line in _lines(log)}
    assert told == {
        "execution_failed": (200 if stream else 500, None),
        "invalid_json": (400, None),
        None: (None, True),
    }


def test_probes_are_only_told_to_who_asks_for_all(caplog: pytest.LogCaptureFixture) -> None:
    for level, expected in ((logging.INFO, set()), (logging.DEBUG, {"/ready", "/metrics"})):
        caplog.set_level(level, logger="helios")
        with running_server(says("hello")) as server:
            server.http.get("/ready")
            server.http.get("/metrics")
        assert {line["path"] for line in _lines(caplog)} == expected
    with running_server(says("hello"), loaded=False) as server:
        caplog.clear()
        caplog.set_level(logging.INFO, logger="helios")
        assert server.http.get("/ready").status_code == 503
        server.lifecycle.fail(CoreError("not accepted", where="core"))
        assert server.http.get("/health").status_code == 500
    assert [line["path"] for line in _lines(caplog)] == ["/health"]


def test_there_may_be_none(log: pytest.LogCaptureFixture) -> None:
    with running_server(says("hello"), options=HttpOptions(log_access=False)) as server:
        assert server.http.post(PATH, json=BODY).status_code == 200
    assert _lines(log) == []


def test_a_bug_is_told_with_its_request_and_nothing_is_raised_twice(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr("helios.server.generation.check_model", broken)
    with running_server(says("hello")) as server:
        assert server.http.post(PATH, json=BODY).status_code == 500
    (told,) = (record for record in log.records if record.exc_info)
    assert (told.name, told.levelname) == ("helios.server.envelope", "ERROR")
    (line,) = _lines(log)
    assert (line["status"], line["error"]) == (500, "internal_error")


# ---------------------------------------------------------------- processes


@contextmanager
def _logging_server(core: Path, *options: str, **environment: str) -> Iterator[ServerProcess]:
    """A server whose standard error the test reads once it has ended."""
    command = [*COMMAND, "serve", str(core), "--accept", NAMESPACE, "--port", "0", "--threads", "1"]
    with subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            ready = process.stdout.readline()
            assert ready.startswith("ready: ")
            with httpx.Client(base_url=url, timeout=DEADLINE_S) as http:
                yield ServerProcess(process, url, http, ready)
        finally:
            process.kill()


def _ended(server: ServerProcess, status: int = 0) -> list[str]:
    """The lines of a server that is asked to end, and does with this status."""
    server.process.send_signal(signal.SIGTERM)
    assert server.process.stderr is not None
    lines = server.process.stderr.read().splitlines()
    assert server.process.wait(DEADLINE_S) == status
    return lines


def test_json_lines_of_a_process(core_folder: Path) -> None:
    with _logging_server(core_folder, "--log-format", "json", "--log-level", "debug") as server:
        body = {"model": "tiny", "prompt": f"say {SECRET}", "max_tokens": 4, f"x{ESCAPES}\n": 1}
        headers = {"x-request-id": '"},{"status":200'}
        answer = server.http.post(f"/v1/completions?q={SECRET}", json=body, headers=headers)
        assert answer.status_code == 200
        server.http.get("/%1b%5b2J%0a2026-01-01T00:00:00.000Z%20info%20http:%20request")
        lines = _ended(server)
    assert all(line.isascii() and line.isprintable() for line in lines)
    found = {line["path"]: line for line in map(json.loads, lines) if "path" in line}
    line = found["/v1/completions"]
    assert line["request_id"] == headers["x-request-id"]
    assert line["answer_id"] == answer.json()["id"]
    assert line["output_tokens"] == 4
    assert line["finish"] == ["length"]
    assert line["ignored"] == [f"x{ESCAPES}\n"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert (line["level"], line["process"]) == ("info", "http")
    assert any(path.startswith("/\x1b[2J\n2026") for path in found)
    assert SECRET not in "\n".join(lines)


def test_text_lines_of_a_process_cannot_be_forged(core_folder: Path) -> None:
    with _logging_server(core_folder) as server:
        headers = {"x-request-id": "a]status=500"}
        server.http.get("/%0a2026-01-01T00:00:00.000Z%20info%20http:%20request", headers=headers)
        (line,) = _ended(server)
    assert line.isprintable()
    assert ' request_id="a]status=500" client=127.0.0.1 method=GET ' in line
    assert ' path="/\\n2026-01-01T00:00:00.000Z info http: request" status=404 ' in line


def test_a_worker_that_fails_says_so_in_the_same_form(core_folder: Path) -> None:
    with _logging_server(core_folder, "--log-format", "json") as server:
        os.kill(server.worker_pid(), signal.SIGKILL)
        health = server.http.get("/health")
        while health.status_code == 200:
            health = server.http.get("/health")
        lines = [json.loads(line) for line in _ended(server, status=1)]
    assert all(line["process"] == "http" for line in lines)
    assert lines[-1]["level"] == "error"
    assert "this server's model had failed: model worker: " in lines[-1]["message"]
    ended = run_cli("serve", "absent", "--accept", "x", "--log-format", "json")
    assert ended.returncode == 2
    (line,) = map(json.loads, ended.stderr.splitlines())
    assert line["level"] == "error"
    assert "absent" in line["message"]


def test_clients_that_are_killed_leave_no_noise(core_folder: Path) -> None:
    """asyncio complains of each write to a connection that is gone."""
    with _logging_server(core_folder, "--log-format", "json") as server:
        url = httpx.URL(server.url)
        body = {"model": "tiny", "prompt": "hello", "max_tokens": 400, "ignore_eos": True}
        payload = json.dumps(body | {"stream": True, "n": 4}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(payload)}\r\n\r\n"
        for _ in range(5):
            with socket.create_connection((url.host, url.port)) as connection:
                # Whatever is unread when this closes resets the connection.
                connection.sendall(head.encode() + payload)
                connection.recv(1)
        server.metrics_until(lambda now: now["flare_http_permits"] == 0)
        lines = [json.loads(line) for line in _ended(server)]
    assert [line["message"] for line in lines] == ["request"] * 5
    assert all(line["disconnected"] for line in lines)


# ---------------------------------------------------------------- keys


def test_keys_are_nowhere(core_folder: Path, tmp_path: Path) -> None:
    keys = {"file": "sk-of-the-file", "variable": "sk-of-the-variable"}
    path = tmp_path / "keys"
    path.write_text(keys["file"] + "\n")
    options = ("--api-key-file", str(path), "--log-format", "json", "--log-level", "debug")
    with _logging_server(core_folder, *options, HELIOS_API_KEY=keys["variable"]) as server:
        assert server.http.get("/v1/models").status_code == 401
        for name in ("file", "variable"):
            server.http.headers["authorization"] = f"Bearer {keys[name]}"
            info = server.http.get("/server_info")
            assert info.status_code == 200
            assert "sk-of" not in info.text
        worker = server.worker_pid()
        for pid in (server.process.pid, worker):
            assert "sk-of" not in Path(f"/proc/{pid}/cmdline").read_text()
        assert "sk-of" not in Path(f"/proc/{worker}/environ").read_text()
        lines = _ended(server)
    assert "sk-of" not in "\n".join(lines)
    refused = run_cli("serve", core_folder, "--accept", NAMESPACE, "--api-key", "sk of")
    assert refused.returncode == 2
    assert refused.stderr.startswith("helios: --api-key: ")
    assert "sk of" not in refused.stderr


def test_chat_sends_the_key_of_its_environment(core_folder: Path) -> None:
    talk = ("chat", "--message", "hello", "--max-tokens", "4", "--server")
    with _logging_server(core_folder, HELIOS_API_KEY="sk-chat") as server:
        for key, status, said in (
            ("sk-chat", 0, ""),
            ("sk-other", 2, "Put one of its keys into HELIOS_API_KEY"),
            ("sk chat", 2, "HELIOS_API_KEY: an API key can't be sent"),
        ):
            ended = subprocess.run(
                [*COMMAND, *talk, server.url],
                env={**os.environ, "HELIOS_API_KEY": key},
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )
            assert (ended.returncode, said in ended.stderr) == (status, True)
            assert key not in ended.stdout + ended.stderr
