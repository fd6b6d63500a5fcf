"""Another HTTP process: `python -m helios.server.http_child`, started by `http_workers`.

It is told what to do on standard input, by the process that it serves beside, and inherits its
sockets. It opens the core itself, joins the worker, and serves until it is told to stop: a byte on
the control socket is what a signal is to the first process, the socket's end means that the first
process has died. Signals are left to that one.
"""

from __future__ import annotations

import signal

# From the first moment on: an interrupt from the terminal reaches this process too, while it
# imports.
if __name__ == "__main__":
    for _number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(_number, signal.SIG_IGN)

import asyncio
import contextlib
import logging
import pickle
import socket
import sys
from typing import TYPE_CHECKING

from helios import collector
from helios.errors import HeliosError
from helios.logs import logging_to_stderr
from helios.server.child_order import SERVES, ChildOrder

if TYPE_CHECKING:
    from helios.server.http_server import HttpServer

_log = logging.getLogger(__name__)


def main() -> int:
    """Serves; 0 after an orderly end."""
    collector.rest()
    # Written by the process that started this one.
    order = pickle.load(sys.stdin.buffer)
    assert isinstance(order, ChildOrder)
    with logging_to_stderr(order.options.logs, f"http {order.cell + 1}"):
        try:
            with contextlib.suppress(asyncio.CancelledError):  # told to end before it served
                asyncio.run(_serve(order))
        except HeliosError as error:
            _log.error(str(error))
            return 2
    return 0


async def _serve(order: ChildOrder) -> None:
    # Imported here, so that what the module is imported for elsewhere stays cheap.
    from helios.server.app import build_app
    from helios.server.http_server import HttpServer
    from helios.server.lifecycle import Lifecycle
    from helios.server.liveness import DeviceWatch, follow
    from helios.server.loading import Loading, load
    from helios.server.options_in_force import options_in_force
    from helios.server.shared_permits import SharedPermits
    from helios.worker.client import ModelClient
    from helios.worker.served_core import open_served_core

    options = order.options
    processes = options.http_workers
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=order.control))
    client = await ModelClient.join(socket.socket(fileno=order.connection), processes)
    watch = DeviceWatch(options.http.liveness.stall_timeout_s)
    lifecycle = Lifecycle(watch, options_in_force(options))
    app = build_app(lifecycle, options.http, process=order.number)
    http = HttpServer(
        app,
        lifecycle,
        options=options.http,
        when_started=lambda: writer.write(SERVES),
    )
    this = asyncio.current_task()
    assert this is not None
    obeying = asyncio.ensure_future(_obey(reader, http, this))
    try:
        core = await asyncio.to_thread(open_served_core, options.worker)
        permits = SharedPermits(order.permits, processes, order.cell)
        await load(lifecycle, client, Loading(core, options, permits, order.created))
        following = asyncio.create_task(follow(client, watch), name="helios device watch")
        await http.run_on(socket.socket(fileno=order.listener))
        following.cancel()
    finally:
        obeying.cancel()
        writer.close()
        await client.close()


async def _obey(
    reader: asyncio.StreamReader, http: HttpServer, serving: asyncio.Task[None]
) -> None:
    """Stops with each byte, and at once with the end."""
    while await reader.read(1):
        _stop(http, serving)
    _stop(http, serving)
    _stop(http, serving)


def _stop(http: HttpServer, serving: asyncio.Task[None]) -> None:
    if http.started:
        http.stop()
    else:
        serving.cancel()


if __name__ == "__main__":
    sys.exit(main())
