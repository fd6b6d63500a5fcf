"""Where a stream's events go: the connection itself, where the server lends it, else ASGI's `send`.

`send` costs several calls and a task's turn for each event. `DirectWriter` writes a response's body
past it, in HTTP's framing; the response's head and end still go through `send`. A writer that is
paused keeps nothing more: who has something to write waits for `on_resume`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from starlette.types import Scope, Send

from helios.server.delivery import DeliveringProtocol, lent_connection
from helios.server.outbox import outbox


class BodyWriter(Protocol):
    """Takes a body's bytes in order."""

    on_resume: Callable[[], None]

    @property
    def paused(self) -> bool:
        """Whether the reader is behind; `on_resume` is called once it isn't."""

    def write(self, data: bytes) -> None:
        """Sends bytes, some at least; nothing happens if the client has gone."""

    async def end(self, data: bytes) -> None:
        """Sends the last bytes, and the end."""


def _nothing() -> None:
    return


class DirectWriter:
    """Writes to a lent connection, by way of the outbox. Only between the head of a response and
    its end."""

    def __init__(self, connection: DeliveringProtocol, send: Send, *, chunked: bool) -> None:
        self._connection = connection
        self._send = send
        self._chunked = chunked
        self._later = outbox().add
        self._unsent = b""
        self._awaited = False
        self.on_resume: Callable[[], None] = _nothing
        connection.on_resume = self._resume

    @property
    def paused(self) -> bool:
        """As `BodyWriter.paused`."""
        if self._unsent:
            self._awaited = True
            return True
        return self._connection.flow.write_paused

    def write(self, data: bytes) -> None:
        """As `BodyWriter.write`."""
        self._unsent = b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data
        self._later(self._flush)

    def _flush(self) -> None:
        data, self._unsent = self._unsent, b""
        if data:
            self._connection.write(data)
        if self._awaited:
            self._resume()

    def _resume(self) -> None:
        if not self.paused:
            self._awaited = False
            self.on_resume()

    async def end(self, data: bytes) -> None:
        """As `BodyWriter.end`."""
        self._connection.on_resume = None
        self._awaited = False
        self._flush()
        await self._send({"type": "http.response.body", "body": data, "more_body": False})


class SendWriter:
    """Writes through `send`, one piece at a time."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sending: asyncio.Task[None] | None = None
        self.on_resume: Callable[[], None] = _nothing

    @property
    def paused(self) -> bool:
        """As `BodyWriter.paused`."""
        return self._sending is not None

    def write(self, data: bytes) -> None:
        """As `BodyWriter.write`."""
        self._sending = asyncio.ensure_future(self._write(data))

    async def end(self, data: bytes) -> None:
        """As `BodyWriter.end`."""
        self.on_resume = _nothing
        if self._sending is not None:
            await self._sending
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def _write(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self._sending = None
        self.on_resume()


def body_writer(scope: Scope, send: Send) -> BodyWriter:
    """The best writer for a response whose head has been sent."""
    connection = lent_connection(scope)
    if connection is None:
        return SendWriter(send)
    # HTTP/1.0 has no chunks: the connection's end is the body's.
    return DirectWriter(connection, send, chunked=scope["http_version"] != "1.0")
