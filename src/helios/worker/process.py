"""The model worker as a process: `python -m helios.worker FD[,DOOR]`.

FD is an inherited stream socket to the client, DOOR one that more clients come in by
(`connections`). The socket first carries what to serve (`order`), and meanwhile the process loads
its libraries. It loads the model, says ready or failed, and serves until the client goes. Signals
that ask a whole group of processes to end (an interrupt from the terminal, a supervisor's SIGTERM)
are left to the client, which lets answers finish and then ends the worker; its closed socket does
so too.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Sequence

from helios import collector
from helios.errors import HeliosError, family_name
from helios.logs import logging_to_stderr
from helios.thread_turns import shorten_turns
from helios.worker.channel import SocketChannel
from helios.worker.connections import ConnectionsChannel, ProcessConnection
from helios.worker.messages import WorkerFailed
from helios.worker.model_worker import ModelWorker
from helios.worker.options import WorkerOptions
from helios.worker.order import receive_order
from helios.worker.startup import load_model

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str], began_ns: int) -> int:
    """Runs the worker; 0 where it was told to end or wasn't needed, 1 where it failed (the client
    knows why). It began to import at `began_ns` of the monotonic clock."""
    import_ms = (time.monotonic_ns() - began_ns) / 1e6
    (descriptors,) = arguments
    first, *doors = (socket.socket(fileno=int(one)) for one in descriptors.split(","))
    options = receive_order(first)
    if options is None:
        return 0
    with logging_to_stderr(options.logs, "worker"):
        channel = open_channel(first, doors)
        try:
            return _serve(channel, options, import_ms)
        finally:
            channel.close()


def open_channel(
    first: socket.socket, doors: Sequence[socket.socket]
) -> SocketChannel | ConnectionsChannel:
    """The channel over inherited sockets: of the only client, or of the first one and the door."""
    if not doors:
        return SocketChannel(first)
    (door,) = doors
    return ConnectionsChannel(ProcessConnection(first), door)


def _serve(
    channel: SocketChannel | ConnectionsChannel, options: WorkerOptions, import_ms: float
) -> int:
    of_gpu = options.target is not None and options.target.startswith("cuda")
    if of_gpu:
        shorten_turns(of_gpu=True)  # threads of the driver's load beside this one
    try:
        model = load_model(options)
    except Exception as error:
        if not isinstance(error, HeliosError):
            _log.exception("the model can't be loaded")
        channel.send([WorkerFailed(family_name(error), str(error))])
        return 1
    model.startup_ms["import"] = import_ms
    collector.settle(collector.YOUNG_OBJECTS)
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
        # Whatever the client hasn't read yet leaves, and it knows the end, before a device that
        # doesn't answer takes its time to close.
        channel.close()
        return 1
    finally:
        model.close()
    return 0
