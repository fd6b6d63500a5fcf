"""Other HTTP processes that can't be started: what the first one does then."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from pathlib import Path

import pytest

from helios.server import other_processes
from helios.server.listeners import listen
from helios.server.other_processes import OtherProcesses
from helios.server.server import ServerOptions
from helios.worker.options import WorkerOptions


def _start(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many of two processes serve that `command` starts; then all end."""
    monkeypatch.setattr(other_processes, "CHILD_COMMAND", command)
    options = ServerOptions("", 0, WorkerOptions(core="", accept=""), http_workers=3)

    async def scenario() -> int:
        door, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with door, far, listen("127.0.0.1", 0, shared=True) as listener:
            others = OtherProcesses(options, door, listener)
            serving = await others.start(created=0)
            others.stop()
            await others.end()
            return serving

    return asyncio.run(asyncio.wait_for(scenario(), 60))


def test_processes_that_end_before_they_serve_are_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "helios"):
        assert _start((sys.executable, "-c", "raise SystemExit(5)"), monkeypatch) == 0
    assert "HTTP process 2 of 3 ended with status 5 and is started again in 2 s" in caplog.text
    assert "HTTP process 3 of 3 ended with status 5" in caplog.text


def test_processes_that_the_system_doesnt_start_are_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.ERROR, "helios"):
        assert _start((str(tmp_path / "nothing"),), monkeypatch) == 0
    assert "ended with status No such file or directory" in caplog.text


def test_a_process_that_wont_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It serves, says its last byte, and reads no order to stop."""
    monkeypatch.setattr(other_processes, "_END_SECONDS", 0.01)
    serves = """
import pickle, signal, socket, sys
order = pickle.load(sys.stdin.buffer)
socket.socket(fileno=order.control).send(b"r")
signal.pause()
"""
    assert _start((sys.executable, "-c", serves), monkeypatch) == 2
