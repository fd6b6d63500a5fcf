"""A client that reads when a test says so: its kernel takes next to nothing meanwhile."""

from __future__ import annotations

import json
import socket
from typing import Any, Self

import httpx

_RECEIVE_NBYTES = 1 << 16
_DEADLINE_S = 120


class SlowReader:
    """Sends one generation request and leaves the answer unread until `rest`. A context manager;
    its end is the client's, whatever is unread."""

    def __init__(self, url: str, path: str, body: dict[str, Any]) -> None:
        address = httpx.URL(url)
        self._connection = socket.socket()
        # Before it connects: the window that it offers follows from it.
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self._connection.settimeout(_DEADLINE_S)
        self._connection.connect((address.host, address.port))
        payload = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
        self._connection.sendall(f"{head}content-length: {len(payload)}\r\n\r\n".encode() + payload)

    def some(self, nbytes: int = 1) -> bytes:
        """At least a byte of the answer."""
        return self._connection.recv(nbytes)

    def rest(self) -> bytes:
        """The answer to its end, status line and headers included."""
        pieces = []
        while piece := self._connection.recv(_RECEIVE_NBYTES):
            pieces.append(piece)
        return b"".join(pieces)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()


def body_of(answer: bytes) -> bytes:
    """What follows the headers of a raw answer, put together if it came in chunks."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return body
    pieces = []
    while True:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return b"".join(pieces)
        pieces.append(body[:length])
        body = body[length + 2 :]
