"""Starts a worker process. Apart from `client`, so that a server can do it before it imports
asyncio and everything else that it needs itself: the model loads meanwhile.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import msgspec

from helios.errors import HeliosError
from helios.worker.options import WorkerOptions

# numpy's threads for matrices: a worker multiplies none, and starting them costs tens of
# milliseconds of a processor that loads the model meanwhile.
_ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1"}
WORKER_COMMAND: Final = (sys.executable, "-m", "helios.worker")


@dataclass(frozen=True, slots=True)
class LaunchedWorker:
    """A worker process and this side's end of its socket; `door` takes connections of more HTTP
    processes (`connections.hand_in`), if there may be any. As a context manager it doesn't let the
    process outlive the block."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    door: socket.socket | None = None

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


def launch(
    options: WorkerOptions, *, command: Sequence[str] = WORKER_COMMAND, door: bool = False
) -> LaunchedWorker:
    """Starts a worker, with a `door` if more processes are to connect. `command` is what runs
    before the descriptors and the options. Raises HeliosError for options that can't travel: text
    that is no Unicode, as a path may be."""
    try:
        encoded = msgspec.json.encode(options).decode()
    except UnicodeEncodeError as error:
        raise HeliosError(
            f"{error.object!r} is no UTF-8",
            where="options",
            remedy="Write namespaces and paths in UTF-8",
        ) from error
    pairs = [socket.socketpair()]
    if door:
        pairs.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    descriptors = [theirs.fileno() for _, theirs in pairs]
    try:
        process = subprocess.Popen(
            [*command, ",".join(map(str, descriptors)), encoded],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            env=_ENVIRONMENT | os.environ,
        )
    finally:
        for _, theirs in pairs:
            theirs.close()
    return LaunchedWorker(process, *(ours for ours, _ in pairs))
