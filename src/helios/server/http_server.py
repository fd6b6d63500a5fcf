"""uvicorn with this server's ends: a signal drains, a second one hurries, a failed start-up ends
at once.

While it drains the listener stays open, so that `/ready` says why no request is taken. Answers
that outlast the drain are ended by the application, with errors that clients can read; what then
still isn't delivered is dropped. uvicorn's own time-out, which would cancel tasks in the middle of
a response, comes later than all of that.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from helios.dataclass import dataclass
from helios.server.admission import Admission
from helios.server.connections import LimitedConnection
from helios.server.lifecycle import Lifecycle
from helios.server.options import HttpOptions
from helios.server.options.tls import tls_context

_BACKLOG: Final = 2048
# TLS says goodbye, which a client that is gone doesn't answer.
_TLS_CLOSE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class EndTimes:
    """Seconds from the signal to end in which running answers may finish, and that readers get
    after it for what is left."""

    answers: float = 4.5
    delivery: float = 0.5

    @classmethod
    def after(cls, shutdown_timeout_s: float) -> EndTimes:
        """Running requests go on for the time-out, then connections drain for five seconds: the
        last half of one is for reading errors, in answers that haven't ended by then."""
        return replace(cls(), answers=shutdown_timeout_s + cls().answers)

    @property
    def backstop(self) -> float:
        """When whatever still keeps the server from its end is cancelled: never, unless there is a
        bug."""
        return self.answers + self.delivery + 5


class HttpServer(uvicorn.Server):
    """Serves `app`, which moves with `lifecycle`, until `stop`. `hurry` is set by each signal after
    the first one, until what it is for has been done; `hurried` says that there was one."""

    def __init__(
        self,
        app: ASGIApp,
        lifecycle: Lifecycle,
        times: EndTimes | None = None,
        options: HttpOptions | None = None,
        *,
        when_started: Callable[[], None] | None = None,
        when_stopped: Callable[[], None] | None = None,
    ) -> None:
        """`when_started` is called once connections are taken, `when_stopped` with every `stop`."""
        options = options or HttpOptions()
        limits = options.limits
        self.times = times or EndTimes.after(limits.shutdown_timeout_s)
        super().__init__(
            uvicorn.Config(
                app,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                timeout_keep_alive=limits.keep_alive_s,  # type: ignore[arg-type]
                timeout_graceful_shutdown=self.times.backstop,  # type: ignore[arg-type]
                proxy_headers=bool(options.proxy.trusted),
                forwarded_allow_ips=list(options.proxy.trusted),
            )
        )
        self._lifecycle = lifecycle
        self._limits = limits
        self._tls = None if options.tls is None else tls_context(options.tls)
        self._when_started = when_started
        self._when_stopped = when_stopped
        self.hurry = asyncio.Event()
        self.hurried = False
        self._ending: asyncio.Task[None] | None = None

    async def run_on(self, listener: socket.socket) -> None:
        """Serves on `listener` to the end."""
        await self.serve(sockets=[listener])
        if self._ending is not None:
            self._ending.cancel()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens on the sockets, with limits on what clients connect for."""
        assert sockets is not None
        tls: dict[str, Any] = {}
        if self._tls is not None:
            tls = {
                "ssl": self._tls,
                "ssl_handshake_timeout": self._limits.head_timeout_s,
                "ssl_shutdown_timeout": _TLS_CLOSE_SECONDS,
            }
        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(self._connection, sock=listener, backlog=_BACKLOG, **tls)
            for listener in sockets
        ]
        self.started = True
        if self._when_started is not None:
            self._when_started()

    def _connection(self) -> LimitedConnection:
        return LimitedConnection(
            self._limits, config=self.config, server_state=self.server_state, app_state={}
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Not uvicorn's way: see `end_signals`."""
        yield

    def stop(self) -> None:
        """Drains, then ends; called again, it ends what still runs at once."""
        if self._when_stopped is not None:
            self._when_stopped()
        if self._ending is not None:
            self.hurried = True
            self.hurry.set()
            return
        self._lifecycle.drain()
        self._ending = asyncio.get_running_loop().create_task(self._end(), name="helios drain")

    def stop_after_failure(self, loading: asyncio.Task[None]) -> None:
        """Ends serving if loading failed."""
        if not loading.cancelled() and loading.exception() is not None:
            self.force_exit = self.should_exit = True

    async def _end(self) -> None:
        times = self.times
        loop = asyncio.get_running_loop()
        end = loop.time() + times.answers + times.delivery
        model = self._lifecycle.model
        if model is not None and not await self._answered(model.admission, times.answers):
            model.client.cancel_all()
            end = loop.time() + times.delivery
            self.hurry.clear()
            await self._answered(model.admission, times.delivery)
        self.should_exit = True
        # uvicorn closes the listener and idle connections, and waits for readers of the others.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(end):
                await self.hurry.wait()
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    async def _answered(self, admission: Admission, seconds: float) -> bool:
        """Waits until all requests are answered, in a hurry or `seconds` at most; whether they
        are."""
        waiting = [
            asyncio.ensure_future(admission.idle()),
            asyncio.ensure_future(self.hurry.wait()),
        ]
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        return admission.held == 0
