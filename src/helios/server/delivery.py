"""When a response has been delivered: its last byte has gone to the reader's socket.

uvicorn's protocol takes a response's end into its write buffer and says that it is sent. A reader
that has paused would so give its permit back while this process still keeps its output. Here the
connection's buffer counts as full as soon as there is anything in it: a response is written no
faster than it is read, and `delivered` waits for the rest. Who streams borrows the connection
(`lent_connection`) and writes past the application's layers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

_EXTENSION: Final = "helios.connection"


class DeliveringProtocol(H11Protocol):
    """Lends the connection to the application: for waiting until what it has sent is on its way
    (`delivered`), and for writing a response's body. `on_resume` is called whenever the client has
    taken what was held back; `written_nbytes` counts what was written so, on the connection."""

    on_resume: Callable[[], None] | None = None
    written_nbytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        # TLS transports take 0 as always full.
        transport.set_write_buffer_limits(high=int(self.scheme == "https"), low=0)
        self.app = _extended(self.app, self)

    def resume_writing(self) -> None:
        """The client has taken everything."""
        super().resume_writing()
        if self.on_resume is not None:
            self.on_resume()

    @property
    def paused(self) -> bool:
        """Whether the client hasn't taken everything."""
        return self.flow.write_paused

    def write(self, data: bytes) -> None:
        """Sends bytes between a response's head and its end, framed as HTTP wants them; nothing
        happens if the client has gone."""
        if not self.transport.is_closing():
            self.written_nbytes += len(data)
            self.transport.write(data)

    async def drain(self) -> None:
        """Waits until the client has taken everything, or has gone."""
        await self.flow.drain()


def _extended(app: ASGIApp, connection: DeliveringProtocol) -> ASGIApp:
    async def extended(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("extensions", {})[_EXTENSION] = connection
        await app(scope, receive, send)

    return extended


def lent_connection(scope: Scope) -> DeliveringProtocol | None:
    """The connection that a request came by; None on a server that doesn't lend it."""
    found: DeliveringProtocol | None = scope.get("extensions", {}).get(_EXTENSION)
    return found


def is_delivered(scope: Scope) -> bool:
    """Whether all bytes of a response that has been sent have left this process. A server that
    doesn't say is believed to have sent them."""
    connection = lent_connection(scope)
    return connection is None or not connection.paused


async def delivered(scope: Scope) -> None:
    """Waits until a response's bytes have left this process, or its client has gone. Returns at
    once on a server that doesn't say."""
    connection = lent_connection(scope)
    if connection is not None:
        await connection.drain()
