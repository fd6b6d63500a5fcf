"""Listening sockets: one, or one a process for the same address.

With several the kernel gives each new connection to one of them, by its addresses and ports.
"""

from __future__ import annotations

import socket
from typing import Final

from helios.errors import HeliosError

_BACKLOG: Final = 2048


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A listening socket; port 0 takes a free one. With `shared`, there may be others `beside` it.
    Raises HeliosError naming the address."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        if shared:
            # Sockets that share an address don't notice another server there; the one above did.
            address = listener.getsockname()
            listener.close()
            listener = _bound(family, address)
            listener.listen(_BACKLOG)
    except (OSError, UnicodeError) as error:  # the latter: no name of a host
        raise HeliosError(
            f"can't listen here ({getattr(error, 'strerror', None) or error})",
            where=f"{host}:{port}",
            remedy="Choose another --host or --port, or stop what listens there",
        ) from error
    _keep_well(listener)
    return listener


def url_of(listener: socket.socket, *, tls: bool) -> str:
    """What clients reach it by."""
    host, port = listener.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def beside(listener: socket.socket) -> socket.socket:
    """Another socket for a shared listener's address. It is given connections once somebody
    listens on it, and keeps what waits for it as long as any process has it open. Raises OSError
    where the system gives no more sockets."""
    other = _bound(listener.family, listener.getsockname())
    _keep_well(other)
    return other


def _bound(family: int, address: object) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)  # type: ignore[arg-type]
    except BaseException:
        bound.close()
        raise
    return bound


def _keep_well(listener: socket.socket) -> None:
    # Connections inherit these. asyncio does the first only where a socket has its protocol's
    # number, which accepted ones lack: a body would wait 40 ms for the client to acknowledge the
    # headers. With the others a client whose machine has vanished is noticed after two minutes.
    for level, option, value in (
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    ):
        listener.setsockopt(level, option, value)
