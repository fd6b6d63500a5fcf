"""The server: one HTTP process over one model worker. `cli` starts it.

Start-up overlaps: the listener is up first, so that clients wait instead of failing; then the
worker process is started; while it loads the model this process opens the core, says that it
listens, and loads what HTTP needs (`serving`). So what this module imports itself is kept small.
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from helios.errors import HeliosError
from helios.logs import LogOptions, logging_to_stderr
from helios.server.options import HttpOptions
from helios.server.options.tls import tls_context
from helios.worker.launch import WORKER_COMMAND, launch
from helios.worker.options import WorkerOptions

# Open files of an HTTP process beside clients' connections; generous.
_OTHER_FILES: Final = 256


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where to listen and what the worker is told. Port 0 takes any free one; `frontend_workers`
    None takes the core's number of preparation slots, `http` is all about HTTP alone."""

    host: str
    port: int
    worker: WorkerOptions
    frontend_workers: int | None = None
    http: HttpOptions = field(default_factory=HttpOptions)

    @property
    def logs(self) -> LogOptions:
        """What all of the server's processes log, and how."""
        return self.worker.logs


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
        certificate's files or the core can't be used, or the model can't be loaded."""
        options = self._options
        tls = options.http.tls
        if tls is not None:
            tls_context(tls)  # what is wrong with its files is said before anything is loaded
        allow_open_files(options.http.limits.max_connections)
        with (
            logging_to_stderr(options.logs, "http"),
            _listen(options.host, options.port) as listener,
            launch(options.worker, command=self._worker_command) as worker,
        ):
            # Only now, since importing these takes a while that the worker can use.
            from helios.server.opening import open_for_serving

            core = open_for_serving(options.worker)
            host, port = listener.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            scheme = "http" if tls is None else "https"
            self._report(f"listening on {scheme}://{shown}:{port}")
            from helios.server.serving import serve

            serve(core, worker, listener, self._report, options)


def allow_open_files(connections: int) -> None:
    """Raises this process's limit of open files as far as so many connections need it and the
    system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


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
    # Connections inherit these. asyncio does the first only where a socket has its protocol's
    # number, which accepted ones lack: a body would wait 40 ms for the client to acknowledge the
    # headers. With the others a client whose machine has vanished is noticed after two minutes.
    for level, option, value in (
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    ):
        listener.setsockopt(level, option, value)
    return listener
