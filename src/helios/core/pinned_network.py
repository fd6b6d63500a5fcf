"""Connections for the HTTP client that lead to approved addresses only, and end when their time is
over.

httpcore asks its network backend for a connection to a host; this one connects only to hosts that
`mirror` approved for the attempt, and to their addresses as `addresses` judged them. TLS still
checks the host's name. Each read and write gets what is left of the attempt's time. That grows only
with the content that arrives: a mirror that sends a byte now and then, or any number of bytes that
aren't content, doesn't hold an attempt open. `mirror` is the caller.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from ssl import SSLContext
from typing import Any

import httpcore

from helios.core.addresses import Endpoint


class PinnedNetwork(httpcore.NetworkBackend):
    """The connections of one client. `ended` ends its attempts from another thread. `clock` gives
    seconds."""

    def __init__(
        self,
        ended: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ended = ended or threading.Event()
        self._clock = clock
        self._deadline_s = self._grace_s = 0.0
        self._rate = 1
        self._approved: dict[tuple[str, int], Endpoint] = {}
        self._sockets = httpcore.SyncBackend()

    def begin(self, grace_s: float, rate: int) -> None:
        """Starts an attempt: nobody is approved yet, and content may never be more than `grace_s`
        behind `rate` bytes a second."""
        self._grace_s = grace_s
        self._rate = rate
        self._deadline_s = self._clock() + grace_s
        self._approved.clear()

    def approve(self, host: str, port: int, endpoint: Endpoint) -> None:
        """Lets the attempt connect to a host."""
        self._approved[host, port] = endpoint

    def advance(self, nbytes: int) -> None:
        """Grants the time for content that arrived. What comes early isn't saved up."""
        earned_s = self._deadline_s + nbytes / self._rate
        self._deadline_s = min(earned_s, self._clock() + self._grace_s)

    def is_late(self) -> bool:
        """Whether the attempt's time is over."""
        return self._clock() >= self._deadline_s

    def left_s(self, timeout_s: float | None) -> float:
        """Seconds that the next step may take. Raises httpcore.ReadTimeout if there are none."""
        left_s = self._deadline_s - self._clock()
        if left_s <= 0 or self._ended.is_set():
            raise httpcore.ReadTimeout("the attempt's time is over")
        return left_s if timeout_s is None else min(left_s, timeout_s)

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """A connection to the first of the host's addresses that answers."""
        endpoint = self._approved.get((host, port))
        if endpoint is None:
            raise httpcore.ConnectError("nobody approved this host")
        failure: httpcore.ConnectError | httpcore.ConnectTimeout | None = None
        for address in endpoint.addresses:
            try:
                stream = self._sockets.connect_tcp(
                    address, port, self.left_s(timeout), local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return _TimedStream(stream, self)
        assert failure is not None, "an endpoint has an address"
        raise failure


class _TimedStream(httpcore.NetworkStream):
    """A stream whose steps end at its network's deadline."""

    def __init__(self, stream: httpcore.NetworkStream, network: PinnedNetwork) -> None:
        self._stream = stream
        self._network = network

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._network.left_s(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._network.left_s(timeout))

    def start_tls(
        self,
        ssl_context: SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left_s = self._network.left_s(timeout)
        return _TimedStream(
            self._stream.start_tls(ssl_context, server_hostname, left_s), self._network
        )

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
