"""One HTTP exchange over a socket of its own, by clients that may be slow, or leave.

Nothing of a client library stands between the soak and the server: what is sent, when a client
stops reading and how it goes are this module's.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

_RECEIVE_NBYTES = 1 << 16
_SMALL_NBYTES = 2048
_DEADLINE_S = 300.0


@dataclass(frozen=True)
class Answer:
    """A status and a body, decoded from its chunks."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body of a whole answer."""
        return json.loads(self.body)

    def events(self) -> list[str]:
        """The data of a stream's events."""
        return [line[6:] for line in self.body.decode().split("\n") if line]


@dataclass(frozen=True)
class Client:
    """Speaks to the server at `address`."""

    address: tuple[str, int]

    async def ask(
        self,
        path: str,
        body: object = None,
        *,
        request_id: str | None = None,
        pause: Callable[[], Awaitable[None]] | None = None,
    ) -> Answer:
        """An exchange to its end: GET without a body, which may be bytes, or what becomes JSON.
        With `pause` the client takes one byte of the answer, and the rest when that has returned;
        its kernel takes next to nothing meanwhile."""
        async with asyncio.timeout(_DEADLINE_S):
            reader, writer = await self._connect(small=pause is not None)
            try:
                writer.write(_request(path, body, request_id))
                first = await reader.read(1)
                if pause is not None:
                    await pause()
                return _decoded(first + await _rest(reader))
            finally:
                writer.transport.abort()

    async def leave(self, path: str, body: object, source: random.Random) -> int:
        """Begins an exchange and goes away: within its body, behind it, or within the answer.
        Returns the bytes that the client had read by then."""
        async with asyncio.timeout(_DEADLINE_S):
            reader, writer = await self._connect(small=source.random() < 0.3)
            data = _request(path, body, None)
            read = 0
            kind = source.randrange(4)
            writer.write(data[: len(data) - 5] if kind == 0 else data)
            await writer.drain()
            if kind >= 2:
                wanted = source.choice((1, 200, 2000, 20_000))
                while read < wanted and (piece := await reader.read(wanted - read)):
                    read += len(piece)
            if source.random() < 0.5:
                writer.transport.abort()  # a reset, and not the usual end
            else:
                writer.close()
            return read

    async def _connect(self, *, small: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection = socket.socket()
        if small:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_NBYTES)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, self.address)
        limit = _SMALL_NBYTES if small else _RECEIVE_NBYTES
        return await asyncio.open_connection(sock=connection, limit=limit)


def _request(path: str, body: object, request_id: str | None) -> bytes:
    if body is None:
        return f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode()
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = "" if request_id is None else f"x-request-id: {request_id}\r\n"
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{named}"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data


async def _rest(reader: asyncio.StreamReader) -> bytes:
    pieces = []
    while piece := await reader.read(_RECEIVE_NBYTES):
        pieces.append(piece)
    return b"".join(pieces)


def _decoded(data: bytes) -> Answer:
    head, _, rest = data.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    if b"transfer-encoding: chunked" not in head.lower():
        return Answer(status, rest)
    pieces, at = [], 0
    while True:
        line_end = rest.index(b"\r\n", at)
        length = int(rest[at:line_end], 16)
        if not length:
            return Answer(status, b"".join(pieces))
        pieces.append(rest[line_end + 2 : line_end + 2 + length])
        at = line_end + length + 4
