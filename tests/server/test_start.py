"""How a server starts: its worker first, its options later, and nothing left of what can't be."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from helios.errors import HeliosError
from helios.server.listeners import listen
from helios.worker.launch import start
from helios.worker.options import WorkerOptions
from helios.worker.order import encode_order, receive_order, send_order
from tests.server.real import DEADLINE_S, NAMESPACE, ServerProcess, run_cli, server_process

# Runs the command line with a worker process that is looked at when it is started, and at the end.
WATCHED = """
import sys
import helios.worker.launch as launch
from helios.cli import main

start = launch.start
started = []

def watched(**options):
    print("loaded", *sys.modules)
    started.append(start(**options))
    return started[-1]

launch.start = watched
try:
    main()
except SystemExit as end:
    print("ended", end.code, *(worker.process.returncode is not None for worker in started))
"""


def watched(*arguments: object) -> tuple[list[str], str, str]:
    """The modules that were loaded when the worker was started, the last line, what was said."""
    ended = subprocess.run(
        [sys.executable, "-c", WATCHED, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    lines = ended.stdout.splitlines()
    return lines[0].split()[1:], lines[-1], ended.stderr


def test_the_worker_is_started_before_anything_is_loaded() -> None:
    loaded, _, _ = watched("serve", "core", "--accept", "tests", "--cache-memory", "much")
    assert "helios.worker.launch" in loaded
    late = {"typer", "logging", "dataclasses", "msgspec", "asyncio", "numpy", "helios.cli_serve"}
    assert not late & set(loaded)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve"], "Missing argument"),
        (["serve", "core", "--accept", "tests", "--port", "65536"], "65535"),
        (["serve", "core", "--accept", "tests", "--queue-capacity", "99999"], "--queue-capacity"),
        (["serve", "core", "--accept", "tests", "--device", f"{10**20}"], "--device"),
        (["serve", "core", "--accept", "tests", "--prt", "1"], "No such option: --prt"),
        (
            ["serve", "core", "--accept", "tests", "--cache-memory", "much"],
            "helios: --cache-memory",
        ),
        (["serve", "core", "--accept", "tests", "--prefill-share", "7"], "helios: "),
        (["serve", "core", "--accept", "tests", "--tls-cert", "nowhere"], "helios: "),
        (["serve", "core", "--accept", "tests", "--host", "256.0.0.1"], "helios: "),
        (["serve", "nowhere", "--accept", "tests"], "helios: nowhere: there is no such folder"),
    ],
)
def test_a_bad_option_leaves_no_worker(arguments: list[str], said: str) -> None:
    _, last, errors = watched(*arguments)
    assert last == "ended 2 True", "the worker that was started has been ended and waited for"
    assert said in errors
    assert "Traceback" not in errors


def test_help_leaves_no_worker() -> None:
    _, last, _ = watched("serve", "--help")
    assert last == "ended 0 True"


def test_an_address_in_use_leaves_no_worker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        _, last, errors = watched("serve", "core", "--accept", "tests", "--port", port)
    assert last == "ended 2 True"
    assert str(port) in errors


@pytest.mark.parametrize("said", [b"", b"\x10", b"\x10\0\0\0{"])
def test_a_worker_that_isnt_needed_ends_by_itself(said: bytes) -> None:
    with start() as worker:
        worker.connection.sendall(said)
        worker.connection.close()
        assert worker.process.wait(DEADLINE_S) == 0


def test_a_worker_whose_parent_is_killed_ends() -> None:
    script = (
        "import sys; from helios.worker.launch import start;"
        "print(start().process.pid, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        worker = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.kill()
            assert select.select([worker], [], [], DEADLINE_S)[0], "the worker goes on"
        finally:
            os.close(worker)


def test_an_order_is_taken_off_the_socket_and_nothing_behind_it() -> None:
    options = WorkerOptions(core="nowhere", accept="tests", threads=3)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send_order(ours, encode_order(options))
        ours.sendall(b"message")
        assert receive_order(theirs) == options
        assert theirs.recv(16) == b"message"


def test_an_order_to_a_dead_worker_is_no_error() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        send_order(ours, encode_order(WorkerOptions(core="nowhere", accept="tests")))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "8 slots"),
        (["--prefill-share", ".5"], "8 slots"),  # as only Typer reads it
        (["--max-active", "2", "--threads", "1", "--cache-memory", "2MiB"], "2 slots"),
        (["--isa", "portable", "--no-oracle"], "cpu/portable"),
        (["--http-workers=2", "--queue-capacity", "8"], "queue of 8"),
        (["--http-workers", "1", "--no-prefix-reuse"], "no prefix reuse"),
        (["--log-format", "json", "--log-level", "debug", "--no-access-log"], "8 slots"),
        (["--offload-memory", "1MiB", "--vllm-metrics", "--strict-fields"], "offload memory"),
        (["--root-path", "/llm", "--shutdown-timeout", "1", "--max-connections", "20"], "8 slots"),
    ],
)
def test_a_start_with_each_of_the_main_options(
    core_folder: Path, options: list[str], said: str
) -> None:
    with server_process(core_folder, *options) as server:
        assert said in server.ready
        assert _answers(server)
        assert server.terminate() == 0


def _answers(server: ServerProcess) -> bool:
    body = {"model": "tiny", "prompt": "hello", "max_tokens": 2}
    ready = server.http.get("/ready").status_code
    return (ready, server.http.post("/v1/completions", json=body).status_code) == (200, 200)


def test_a_core_that_isnt_accepted_ends_the_server(core_folder: Path) -> None:
    _, last, errors = watched("serve", core_folder, "--accept", NAMESPACE + "?", "--port", 0)
    assert last == "ended 2 True"
    assert f"{NAMESPACE}?" in errors


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--target", "riscv"], "riscv"),
        (["--isa", "sse9"], "sse9"),
    ],
)
def test_what_the_worker_refuses_is_no_start(
    core_folder: Path, options: list[str], said: str
) -> None:
    """The HTTP process takes these for good; who reads "listening" may rely on it."""
    done = run_cli("serve", core_folder, "--accept", NAMESPACE, "--port", 0, *options)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("host", ["..", "localhost.."])
def test_a_host_that_is_no_name_is_refused(host: str) -> None:
    with pytest.raises(HeliosError, match="can't listen here") as refused:
        listen(host, 0)
    assert refused.value.where == f"{host}:0"
