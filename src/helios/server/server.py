"""The server: one HTTP process over one model worker. `cli` starts it.

Start-up overlaps: the listener is up first, so that clients wait instead of failing; then the
worker process is started; while it loads the model this process opens the core, says that it
listens, and loads what HTTP needs (`serving`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass

from helios.errors import HeliosError
from helios.worker.client import ModelClient
from helios.worker.options import WorkerOptions


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where to listen and what the worker is told. Port 0 takes any free one."""

    host: str
    port: int
    worker: WorkerOptions


class Server:
    """`report` gets a line about each step that an operator wants to know."""

    def __init__(self, options: ServerOptions, report: Callable[[str], None]) -> None:
        self._options = options
        self._report = report

    def start(self) -> None:
        """Serves until SIGTERM or SIGINT. Raises HeliosError if the address can't be had, the
        core can't be opened or the model can't be loaded."""
        with _listen(self._options.host, self._options.port) as listener:
            asyncio.run(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        worker = self._options.worker
        client = await ModelClient.start(worker)
        try:
            # Only now, since importing these takes a while that the worker can use.
            from helios.server.opening import open_for_serving

            core = open_for_serving(worker)
            host, port = listener.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            self._report(f"listening on http://{shown}:{port}")
            from helios.server.serving import serve_http

            await serve_http(core, client, listener, worker, self._report)
        finally:
            await client.close()


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises HeliosError naming the address."""
    where = f"{host}:{port}"
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise HeliosError(
            f"can't listen here ({error.strerror or error})",
            where=where,
            remedy="Choose another --host or --port, or stop what listens there",
        ) from error
