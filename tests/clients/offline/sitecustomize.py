"""Keeps a process to this machine: any other address is refused and said on stderr.

Clients are made by others; some look for news, prices or tokenizers on the network. Python imports
this module by its name where its folder is on PYTHONPATH, which is how child processes get it;
tests use `only_loopback` itself.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any, Final

REFUSED: Final = "no network for clients:"
_HERE: Final = ("127.", "::1", "localhost", "0.0.0.0")


def _check(host: object, refused: list[str]) -> None:
    name = host.decode() if isinstance(host, bytes) else host
    if name is None or str(name).startswith(_HERE):
        return
    refused.append(str(name))
    print(REFUSED, name, file=sys.stderr, flush=True)
    raise OSError(f"{REFUSED} {name}")


@contextlib.contextmanager
def only_loopback() -> Iterator[list[str]]:
    """Refuses connections and look-ups of other hosts, whose names it yields as they come."""
    refused: list[str] = []
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex
    getaddrinfo = socket.getaddrinfo

    def checked_connect(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX:
            _check(address[0], refused)
        connect(self, address)

    def checked_connect_ex(self: socket.socket, address: Any) -> int:
        if self.family != socket.AF_UNIX:
            _check(address[0], refused)
        return connect_ex(self, address)

    def checked_getaddrinfo(host: Any, *arguments: Any, **more: Any) -> Any:
        _check(host, refused)
        return getaddrinfo(host, *arguments, **more)

    socket.socket.connect = checked_connect  # type: ignore[method-assign]
    socket.socket.connect_ex = checked_connect_ex  # type: ignore[method-assign]
    socket.getaddrinfo = checked_getaddrinfo
    try:
        yield refused
    finally:
        socket.socket.connect = connect  # type: ignore[method-assign]
        socket.socket.connect_ex = connect_ex  # type: ignore[method-assign]
        socket.getaddrinfo = getaddrinfo


if __name__ == "sitecustomize" and os.environ.get("HELIOS_ONLY_LOOPBACK"):
    _installed = only_loopback()
    _installed.__enter__()
