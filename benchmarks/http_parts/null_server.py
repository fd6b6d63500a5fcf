"""`helios serve` over the worker of `null_worker`: `null_server.py CORE BOARD ROUND_MS SLOTS N`."""

from __future__ import annotations

import sys
from pathlib import Path

from helios.server.server import Server, ServerOptions
from helios.worker.launch import start
from helios.worker.options import WorkerOptions

_WORKER = Path(__file__).with_name("null_worker.py")


def main(core: str, board: str, round_ms: str, slots: str, http_workers: str) -> None:
    """Serves until a signal."""
    worker = WorkerOptions(
        core=core, accept="host", allow_unknown_publisher=True, request_slots=int(slots)
    )
    command = (sys.executable, str(_WORKER), board, round_ms)
    options = ServerOptions("127.0.0.1", 0, worker, http_workers=int(http_workers))
    worker_process = start(command=command, door=True)
    Server(options, lambda line: print(line, flush=True), worker=worker_process).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
