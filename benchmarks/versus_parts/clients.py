"""HTTP clients for streamed completions: waves of requests that start together, over raw sockets on
one epoll, since the clients share the processors with the server. Bytes are kept as they come and
looked at when the wave is over.
"""

from __future__ import annotations

import json
import random
import re
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

_RECEIVE_NBYTES = 1 << 16
_OK = b"HTTP/1.1 200"
_EVENT = b"data: "
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_PROMPT_IDS = range(100, 40_000)
_USAGE = re.compile(rb'"completion_tokens": ?([0-9]+)')
_INSTANT_S = 1e-6
DEADLINE_S = 300.0


@dataclass
class Exchange:
    """One request: seconds from the start of its wave to its first event and to the last arrival,
    and what it received."""

    first_s: float | None = None
    last_s: float = 0.0
    content: bytes = b""
    _pieces: list[bytes] = field(default_factory=list)
    _tail: bytes = b""

    def take(self, data: bytes, now_s: float) -> bool:
        """Takes what arrived; whether the answer is whole."""
        self._pieces.append(data)
        self._tail = (self._tail + data)[-len(_LAST_CHUNK) :]
        self.last_s = now_s
        if self.first_s is None and _EVENT in data:
            self.first_s = now_s
        refused = not self._pieces[0].startswith(_OK)
        if not refused and self._tail != _LAST_CHUNK:
            return False
        self.content = b"".join(self._pieces)
        return True

    @property
    def output_tokens(self) -> int:
        """As the server counts them. Raises ValueError where it doesn't say, or refused."""
        found = _USAGE.findall(self.content)
        if not found:
            raise ValueError(f"no usage in {self.content[:200]!r}")
        return int(found[-1])

    @property
    def decode_rate(self) -> float:
        """Tokens a second after the first; of an answer that came in one piece, a great many."""
        assert self.first_s is not None
        return (self.output_tokens - 1) / max(self.last_s - self.first_s, _INSTANT_S)


@dataclass(frozen=True)
class Wave:
    """Requests that ran together."""

    exchanges: tuple[Exchange, ...]

    @property
    def output_rate(self) -> float:
        """Output tokens a second of all of them, prompts' time included."""
        took = max(exchange.last_s for exchange in self.exchanges)
        return sum(exchange.output_tokens for exchange in self.exchanges) / took


def prompts(draw: random.Random, count: int, tokens: int) -> list[list[int]]:
    """Random ids: no two prompts have a beginning in common."""
    return [[draw.choice(_PROMPT_IDS) for _ in range(tokens)] for _ in range(count)]


def payload(model: str, prompt: Sequence[int], tokens: int) -> bytes:
    """A streamed completion of exactly so many tokens, as the bytes of its request."""
    body = {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    content = json.dumps(body).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def wave(port: int, payloads: Sequence[bytes]) -> Wave:
    """Sends all requests, each on its own connection, and waits for all answers. Raises
    ConnectionError where the server hangs up, TimeoutError past the deadline."""
    found = tuple(Exchange() for _ in payloads)
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in payloads]
    open_ones = {one.fileno(): (one, to) for one, to in zip(sockets, found, strict=True)}
    poll = select.epoll()
    try:
        for one in sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            poll.register(one.fileno(), select.EPOLLIN)
        began = time.perf_counter()
        for one, content in zip(sockets, payloads, strict=True):
            one.sendall(content)
        while open_ones:
            for number, _ in poll.poll(1.0):
                one, exchange = open_ones[number]
                data = one.recv(_RECEIVE_NBYTES)
                now_s = time.perf_counter() - began
                if not data:
                    raise ConnectionError("the server hung up")
                if exchange.take(data, now_s):
                    poll.unregister(number)
                    del open_ones[number]
            if time.perf_counter() - began > DEADLINE_S:
                raise TimeoutError(f"no whole answer within {DEADLINE_S:g} s")
    finally:
        poll.close()
        for one in sockets:
            one.close()
    return Wave(found)
