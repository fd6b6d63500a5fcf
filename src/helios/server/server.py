"""The server: HTTP over one model worker, in one process or several. `cli_serve` starts it.

Start-up overlaps: the command starts the worker process before this module is even imported. Then
the listener is up, so that clients wait instead of failing; while the worker loads its libraries
and the model this process opens the core and loads what HTTP needs (`serving`). So what this module
imports itself is kept small: the worker waits for what it is to serve.
"""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable
from dataclasses import field
from typing import Final

from helios.dataclass import dataclass
from helios.errors import HeliosError
from helios.logs import LogOptions, logging_to_stderr
from helios.server.end_signals import EndSignals
from helios.server.listeners import listen, url_of
from helios.server.options import HttpOptions
from helios.server.options.tls import tls_context
from helios.worker.launch import LaunchedWorker, start
from helios.worker.options import WorkerOptions

_log = logging.getLogger(__name__)

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
    http_workers: int = 1

    def __post_init__(self) -> None:
        if self.http_workers < 1:
            raise HeliosError(
                f"{self.http_workers} processes serve nobody",
                where="--http-workers",
                remedy="Give 1 or more",
            )

    @property
    def logs(self) -> LogOptions:
        """What all of the server's processes log, and how."""
        return self.worker.logs


class Server:
    """`report` gets a line about each step that an operator wants to know. `worker` is one that has
    been started already (with a door where there are several HTTP processes) and is the server's
    from now on; else it starts one itself."""

    def __init__(
        self,
        options: ServerOptions,
        report: Callable[[str], None],
        *,
        worker: LaunchedWorker | None = None,
    ) -> None:
        self._options = options
        self._report = report
        self._worker = worker

    def start(self) -> HeliosError | None:
        """Serves until SIGTERM or SIGINT; why the model couldn't serve any more, if it failed
        before. Raises HeliosError if the address can't be had, the certificate's files or the core
        can't be used, or the model can't be loaded."""
        options = self._options
        tls = options.http.tls
        if tls is not None:
            tls_context(tls)  # what is wrong with its files is said before anything is loaded
        several = options.http_workers > 1
        allow_open_files(options.http.limits.max_connections)
        with (
            EndSignals() as signals,
            logging_to_stderr(options.logs, "http"),
            listen(options.host, options.port, shared=several) as listener,
            self._worker or start(door=several) as worker,
        ):
            worker.order(options.worker)
            # Only now, since importing these takes a while that the worker can use.
            from helios.server.opening import open_for_serving

            core = open_for_serving(options.worker)
            signals.take()
            # Not yet that it listens: the worker may still refuse the core or the machine.
            _log.debug("loading %s for %s", options.worker.core, url_of(listener, tls=bool(tls)))
            from helios.server.serving import serve

            return serve(core, worker, listener, self._report, options, signals)


def allow_open_files(connections: int) -> None:
    """Raises this process's limit of open files as far as so many connections need it and the
    system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
