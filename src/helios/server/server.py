"""The server: one HTTP process over one model worker. `cli` starts it.

Start-up overlaps: the listener is up first, so that clients wait instead of failing; then the
worker process is started; while it loads the model this process opens the core, says that it
listens, and loads what HTTP needs (`serving`). So what this module imports itself is kept small.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from helios.errors import HeliosError
from helios.server.options import HttpOptions
from helios.worker.launch import WORKER_COMMAND, launch
from helios.worker.options import WorkerOptions


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where to listen and what the worker is told. Port 0 takes any free one; `frontend_workers`
    None takes the core's number of preparation slots, `http` is all about HTTP alone."""

    host: str
    port: int
    worker: WorkerOptions
    frontend_workers: int | None = None
    http: HttpOptions = field(default_factory=HttpOptions)


class Server:
    """`report` gets a line about each step that an operator wants to know; `worker_command` starts
    another worker than the usual one, for benchmarks and tests."""

    def __init__(
        self,
        options: ServerOptions,
        report: Callable[[str], None],
        *,
        worker_command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        self._options = options
        self._report = report
        self._worker_command = worker_command

    def start(self) -> None:
        """Serves until SIGTERM or SIGINT. Raises HeliosError if the address can't be had, the
        core can't be opened or the model can't be loaded."""
        options = self._options
        with (
            _listen(options.host, options.port) as listener,
            launch(options.worker, command=self._worker_command) as worker,
        ):
            # Only now, since importing these takes a while that the worker can use.
            from helios.server.opening import open_for_serving

            core = open_for_serving(options.worker)
            host, port = listener.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            self._report(f"listening on http://{shown}:{port}")
            from helios.server.serving import serve

            serve(core, worker, listener, self._report, options)


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises HeliosError naming the address."""
    where = f"{host}:{port}"
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise HeliosError(
            f"can't listen here ({error.strerror or error})",
            where=where,
            remedy="Choose another --host or --port, or stop what listens there",
        ) from error
    # Connections inherit this. asyncio does it only where a socket has its protocol's number, which
    # accepted ones lack: a body would wait 40 ms for the client to acknowledge the headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
