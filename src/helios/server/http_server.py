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
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from helios.server.admission import Admission
from helios.server.delivery import DeliveringProtocol
from helios.server.lifecycle import Lifecycle

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_BACKSTOP_SECONDS: Final = 5


@dataclass(frozen=True, slots=True)
class EndTimes:
    """Seconds that running answers get to finish, and that readers get for what is left."""

    answers: float = 5.0
    delivery: float = 0.5


class HttpServer(uvicorn.Server):
    """Serves `app`, which moves with `lifecycle`, until `stop`."""

    def __init__(self, app: ASGIApp, lifecycle: Lifecycle, times: EndTimes | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=DeliveringProtocol,
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=_BACKSTOP_SECONDS,
            )
        )
        self._lifecycle = lifecycle
        self._times = times or EndTimes()
        self._hurry = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None

    async def run_on(self, listener: socket.socket) -> None:
        """Serves on `listener` to the end."""
        await self.serve(sockets=[listener])
        if self._ending is not None:
            self._ending.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals drain; they aren't raised again afterwards, since this is the clean end. Only
        the main thread can take them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Drains, then ends; called again, it ends what still runs at once."""
        if self._ending is not None:
            self._hurry.set()
            return
        self._lifecycle.drain()
        self._ending = asyncio.get_running_loop().create_task(self._end(), name="helios drain")

    def stop_after_failure(self, loading: asyncio.Task[None]) -> None:
        """Ends serving if loading failed."""
        if not loading.cancelled() and loading.exception() is not None:
            self.force_exit = self.should_exit = True

    async def _end(self) -> None:
        model = self._lifecycle.model
        if model is not None and not await self._answered(model.admission, self._times.answers):
            model.client.cancel_all()
            self._hurry.clear()
            await self._answered(model.admission, self._times.delivery)
        self.should_exit = True
        # uvicorn closes the listener and waits for what is still on its way to clients.
        await asyncio.sleep(self._times.delivery)
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    async def _answered(self, admission: Admission, seconds: float) -> bool:
        """Waits until all requests are answered, in a hurry or `seconds` at most; whether they
        are."""
        waiting = [
            asyncio.ensure_future(admission.idle()),
            asyncio.ensure_future(self._hurry.wait()),
        ]
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        return admission.held == 0
