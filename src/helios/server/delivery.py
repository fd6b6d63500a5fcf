"""When a response has been delivered: its last byte has gone to the reader's socket.

uvicorn's protocol takes a response's end into its write buffer and says that it is sent. A reader
that has paused would so give its permit back while this process still keeps its output. Here the
connection's buffer counts as full as soon as there is anything in it: a response is written no
faster than it is read, and `delivered` waits for the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

_EXTENSION: Final = "helios.delivered"


class DeliveringProtocol(H11Protocol):
    """Tells applications when what they have sent is on its way (`delivered`)."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        # TLS transports take 0 as always full.
        transport.set_write_buffer_limits(high=int(self.scheme == "https"), low=0)
        self.app = _extended(self.app, self._delivered)

    async def _delivered(self) -> None:
        """Waits until the write buffer is empty, or the client has gone."""
        await self.flow.drain()


def _extended(app: ASGIApp, wait: Callable[[], Awaitable[None]]) -> ASGIApp:
    async def extended(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("extensions", {})[_EXTENSION] = wait
        await app(scope, receive, send)

    return extended


async def delivered(scope: Scope) -> None:
    """Waits until a response's bytes have left this process, or its client has gone. Returns at
    once on a server that doesn't say."""
    wait = scope.get("extensions", {}).get(_EXTENSION)
    if wait is not None:
        await wait()
