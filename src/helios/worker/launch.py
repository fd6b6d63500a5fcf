"""Starts a worker process. Apart from `client`, and with few imports of its own: a server starts
it before it reads its command line or imports what HTTP needs, and the worker loads meanwhile.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from helios.worker.options import WorkerOptions

# Clients' secret, which no process but those that speak HTTP is to know.
API_KEY_VARIABLE: Final = "HELIOS_API_KEY"
# numpy's threads for matrices: a worker multiplies none, and starting them costs tens of
# milliseconds of a processor that loads the model meanwhile.
_ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1"}
WORKER_COMMAND: Final = (sys.executable, "-m", "helios.worker")


class LaunchedWorker:
    """A worker process and this side's end of its socket; `door` takes connections of more HTTP
    processes (`connections.hand_in`), if there may be any. As a context manager it doesn't let the
    process outlive the block; blocks may be nested."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        connection: socket.socket,
        door: socket.socket | None = None,
    ) -> None:
        self.process = process
        self.connection = connection
        self.door = door

    def order(self, options: WorkerOptions) -> None:
        """Says what to serve; once. Raises HeliosError as `order.encode_order`."""
        # Imported on use: a worker is started before anything is imported that isn't needed.
        from helios.worker.order import encode_order, send_order

        send_order(self.connection, encode_order(options))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.connection.close()
        if self.door is not None:
            self.door.close()
        self.process.kill()
        self.process.wait()


def start(*, command: Sequence[str] = WORKER_COMMAND, door: bool = False) -> LaunchedWorker:
    """Starts a worker that waits for its `order`, with a `door` if more processes are to connect.
    `command` is what runs before the descriptors."""
    pairs = [socket.socketpair()]
    if door:
        pairs.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    descriptors = [theirs.fileno() for _, theirs in pairs]
    environment = _ENVIRONMENT | os.environ
    environment.pop(API_KEY_VARIABLE, None)
    try:
        process = subprocess.Popen(
            [*command, ",".join(map(str, descriptors))],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    finally:
        for _, theirs in pairs:
            theirs.close()
    return LaunchedWorker(process, *(ours for ours, _ in pairs))


def launch(
    options: WorkerOptions, *, command: Sequence[str] = WORKER_COMMAND, door: bool = False
) -> LaunchedWorker:
    """Starts a worker whose order is known. Raises HeliosError for options that can't travel; no
    process is left then."""
    worker = start(command=command, door=door)
    try:
        worker.order(options)
    except BaseException:
        worker.__exit__(None, None, None)
        raise
    return worker
