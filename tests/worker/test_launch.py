"""How a worker process is started: what its environment has."""

from __future__ import annotations

import sys

import pytest

from helios.worker.launch import launch
from helios.worker.options import WorkerOptions

TELLS_ITS_THREADS = (
    sys.executable,
    "-c",
    "import os, socket, sys;"
    "socket.socket(fileno=int(sys.argv[1])).sendall(os.environ['OPENBLAS_NUM_THREADS'].encode())",
)


@pytest.mark.parametrize(("asked", "threads"), [(None, b"1"), ("2", b"2")])
def test_numpy_starts_no_threads_that_nobody_asked_for(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, threads: bytes
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if asked is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", asked)
    options = WorkerOptions(core="nowhere", accept="tests")
    with launch(options, command=TELLS_ITS_THREADS) as worker:
        assert worker.connection.recv(16) == threads
