"""Connections for the HTTP client that lead to approved addresses only and end at a deadline.

httpcore asks its network backend for a connection to a host; this one looks the host up in
`addresses`, where it was judged, and connects to what is written there. TLS still checks the host's
name. Each read and write gets what is left of the attempt's time, so that a mirror that sends a
byte now and then, in its headers or anywhere, doesn't hold an attempt open. `mirror` is the caller.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable
from typing import Any

import httpcore

from helios.core.addresses import Endpoints


class PinnedNetwork(httpcore.NetworkBackend):
    """The connections of one client. `deadline_s`, on the monotonic clock, is set before each
    attempt."""

    def __init__(self, endpoints: Endpoints) -> None:
        self.deadline_s = 0.0
        self._endpoints = endpoints
        self._sockets = httpcore.SyncBackend()

    def left_s(self, timeout_s: float | None) -> float:
        """Seconds that the next step may take. Raises httpcore.ReadTimeout if there are none."""
        left_s = self.deadline_s - time.monotonic()
        if left_s <= 0:
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
        failure: httpcore.ConnectError | httpcore.ConnectTimeout | None = None
        for address in self._endpoints.find(host, port).addresses:
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
        ssl_context: ssl.SSLContext,
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
