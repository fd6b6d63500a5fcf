"""A worker's order, `WorkerOptions`: the first that its socket carries, before any message.

The process is started before its options are known (`launch`), so that it loads its libraries
while the command line is read; a socket that ends without an order means that it isn't needed.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import Final

import msgspec

from helios.errors import HeliosError
from helios.worker.options import WorkerOptions

_LENGTH: Final = struct.Struct("<I")


def encode_order(options: WorkerOptions) -> bytes:
    """The order as it travels. Raises HeliosError for options that can't: text that is no Unicode,
    as a path may be."""
    try:
        encoded = msgspec.json.encode(options)
    except UnicodeEncodeError as error:
        raise HeliosError(
            f"{error.object!r} is no UTF-8",
            where="options",
            remedy="Write namespaces and paths in UTF-8",
        ) from error
    return _LENGTH.pack(len(encoded)) + encoded


def send_order(connection: socket.socket, order: bytes) -> None:
    """Sends an encoded order. To a worker that is dead by now it makes no difference: its client
    hears so, and why."""
    with suppress(ConnectionError):
        connection.sendall(order)


def receive_order(connection: socket.socket) -> WorkerOptions | None:
    """Waits for the order on a blocking socket, and takes no byte of what follows it. None where
    the client has gone instead."""
    head = _receive(connection, _LENGTH.size)
    if head is None:
        return None
    (nbytes,) = _LENGTH.unpack(head)
    encoded = _receive(connection, nbytes)
    return None if encoded is None else msgspec.json.decode(encoded, type=WorkerOptions)


def _receive(connection: socket.socket, nbytes: int) -> bytes | None:
    received = b""
    while len(received) < nbytes:
        try:
            piece = connection.recv(nbytes - len(received))
        except ConnectionError:
            return None
        if not piece:
            return None
        received += piece
    return received
