"""Clients that cost little: many HTTP requests over raw sockets on one epoll, nothing parsed.

A streamed event is counted by its `data: `, the end of an answer by the last chunk; that is all
these clients look at.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_EVENT = b"data: "
_LAST_CHUNK = b"0\r\n\r\n"
_RECEIVE_NBYTES = 1 << 16


def request(path: str, body: dict[str, object]) -> bytes:
    """A POST as bytes."""
    encoded = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(encoded)}\r\n\r\n"
    )
    return head.encode() + encoded


@dataclass
class Received:
    """What the clients have seen: answers to their ends, `events`, and seconds between two arrivals
    of the same stream."""

    answers: int = 0
    events: int = 0
    gaps: list[float] = field(default_factory=list)


def stream(
    address: tuple[str, int],
    payload: bytes,
    connections: int,
    seen: Received,
    goes_on: Callable[[], bool],
    total: int | None = None,
    nap_s: float = 0.0,
) -> None:
    """Keeps `connections` streaming requests running while `goes_on`, or until `total` answers;
    then hangs up. The clients look away for `nap_s` whenever they have read all there is."""
    poll = select.epoll()
    sockets: dict[int, socket.socket] = {}
    arrived: dict[int, float] = {}
    asked = 0
    for _ in range(connections):
        connection = socket.create_connection(address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(payload)
        asked += 1
        sockets[connection.fileno()] = connection
        poll.register(connection.fileno(), select.EPOLLIN)
    try:
        while sockets and goes_on():
            if nap_s:
                time.sleep(nap_s)
            for number, _ in poll.poll(0.1):
                connection = sockets[number]
                data = connection.recv(_RECEIVE_NBYTES)
                now = time.monotonic()
                if not data:
                    raise ConnectionError("the server hung up")
                seen.events += data.count(_EVENT)
                if number in arrived:
                    seen.gaps.append(now - arrived[number])
                arrived[number] = now
                if not data.endswith(_LAST_CHUNK):
                    continue
                seen.answers += 1
                del arrived[number]
                if total is None or asked < total:
                    connection.sendall(payload)
                    asked += 1
                else:
                    poll.unregister(number)
                    sockets.pop(number).close()
    finally:
        for connection in sockets.values():
            connection.close()
        poll.close()
