"""The model worker as a process: `python -m helios.worker FD[,DOOR] OPTIONS`.

FD is an inherited stream socket to the client, DOOR one that more clients come in by
(`connections`), OPTIONS a `WorkerOptions` as JSON. It loads the
model, says ready or failed, and serves until the client goes. Signals that ask a whole group of
processes to end (an interrupt from the terminal, a supervisor's SIGTERM) are left to the client,
which lets answers finish and then ends the worker; its closed socket does so too.
"""

from __future__ import annotations

import logging
import signal
import socket
import time
from collections.abc import Sequence

import msgspec

from helios.errors import HeliosError
from helios.logs import logging_to_stderr
from helios.thread_turns import shorten_turns
from helios.worker import collector
from helios.worker.channel import SocketChannel
from helios.worker.connections import ConnectionsChannel, ProcessConnection
from helios.worker.messages import WorkerFailed
from helios.worker.model_worker import ModelWorker
from helios.worker.options import WorkerOptions

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Runs the worker; 0 where it was told to end, 1 where it failed (the client knows why)."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    descriptors, encoded = arguments
    options = msgspec.json.decode(encoded, type=WorkerOptions)
    with logging_to_stderr(options.logs, "worker"):
        channel = open_channel(descriptors)
        try:
            return _serve(channel, options)
        finally:
            channel.close()


def open_channel(descriptors: str) -> SocketChannel | ConnectionsChannel:
    """The channel over inherited sockets: of the only client, or of the first one and the door."""
    sockets = [socket.socket(fileno=int(one)) for one in descriptors.split(",")]
    if len(sockets) == 1:
        return SocketChannel(sockets[0])
    first, door = sockets
    return ConnectionsChannel(ProcessConnection(first), door)


def _serve(channel: SocketChannel | ConnectionsChannel, options: WorkerOptions) -> int:
    try:
        began = time.monotonic_ns()
        # Imported here, so that its time is a phase of its own.
        from helios.worker.startup import load_model

        imported = time.monotonic_ns()
        model = load_model(options)
    except Exception as error:
        if not isinstance(error, HeliosError):
            _log.exception("the model can't be loaded")
        channel.send([WorkerFailed(type(error).__name__, str(error))])
        return 1
    model.startup_ms["import"] = (imported - began) / 1e6
    collector.settle()
    shorten_turns(of_gpu=model.runtime.geometry.target.startswith("cuda:"))
    try:
        channel.send([model.ready_message()])
        ModelWorker(
            model.runtime,
            channel,
            model.scheduler,
            tier=model.tier,
            open_token_bytes=model.open_token_bytes,
            open_vocabulary=model.open_vocabulary,
            origin_ns=model.origin_ns,
        ).run()
    except Exception:  # the worker has told the client
        _log.exception("the worker has failed")
        return 1
    finally:
        model.close()
    return 0
