"""Channels between the model worker and its client: batches of messages in both directions.

The worker's side is `WorkerChannel`: `receive` sleeps only when asked to, `send` never blocks, so
a slow reader can't delay a launch. `SocketChannel` speaks over a local socket (msgpack batches,
each behind its length), `InProcessChannel` within a process. The asyncio side of the socket is
`helios.worker.client`.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from helios.errors import ExecutionError
from helios.worker.messages import FromWorker, ToWorker
from helios.worker.peer_messages import FromProcess, ToProcess

_LENGTH: Final = struct.Struct("<I")
_BATCH_LIMIT_NBYTES: Final = 1 << 30
_RECEIVE_NBYTES: Final = 1 << 18
_CLOSE_TIMEOUT_S: Final = 5.0

_ENCODER: Final = msgspec.msgpack.Encoder()

Message = TypeVar("Message")


def encode_batch(messages: Sequence[FromProcess | ToProcess]) -> bytes:
    """A batch as it goes over a socket."""
    body = _ENCODER.encode(messages)
    return _LENGTH.pack(len(body)) + body


class BatchDecoder(Generic[Message]):
    """Takes bytes as they come and gives the messages of the batches that they complete."""

    def __init__(self, message_type: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[list[Message]] = msgspec.msgpack.Decoder(
            list[message_type]
        )
        self._bytes = bytearray()

    def feed(self, received: bytes) -> list[Message]:
        """Messages that are complete now. Raises ExecutionError for bytes that are no batch."""
        self._bytes += received
        messages: list[Message] = []
        start = 0
        while len(self._bytes) - start >= _LENGTH.size:
            (nbytes,) = _LENGTH.unpack_from(self._bytes, start)
            if nbytes > _BATCH_LIMIT_NBYTES:
                raise _not_a_batch(f"{nbytes} bytes long")
            end = start + _LENGTH.size + nbytes
            if end > len(self._bytes):
                break
            try:
                messages += self._decoder.decode(self._bytes[start + _LENGTH.size : end])
            except msgspec.MsgspecError as error:
                raise _not_a_batch(str(error)) from error
            start = end
        del self._bytes[:start]
        return messages


def _not_a_batch(what: str) -> ExecutionError:
    return ExecutionError(
        f"what arrived is no batch of messages ({what})",
        where="worker channel",
        remedy="Run both processes from the same installation",
    )


class WorkerChannel(Protocol):
    """The worker's end of a channel."""

    @property
    def closed(self) -> bool:
        """Whether the client has gone; nothing more arrives and what is sent is dropped."""

    def receive(self, *, block: bool, timeout_ms: int | None = None) -> list[ToWorker]:
        """What has arrived, in order. With `block`, waits until something has or the client has
        gone, or for `timeout_ms` if that is less."""

    def send(self, messages: Sequence[FromWorker]) -> None:
        """Sends a batch without ever waiting for the reader."""


class SocketEnd(Generic[Message]):
    """The worker's end of a stream socket, which it owns from now on; `message_type` is what
    arrives.

    What the socket doesn't take at once stays in a buffer and goes on whenever the worker sends
    or receives. The buffer is bounded by what the admitted requests may still emit.
    """

    def __init__(self, connection: socket.socket, message_type: Any) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._decoder: BatchDecoder[Message] = BatchDecoder(message_type)
        self._unsent = bytearray()
        self._closed = False
        self._readable = select.poll()
        self._readable.register(connection, select.POLLIN)
        self._either = select.poll()
        self._either.register(connection, select.POLLIN | select.POLLOUT)

    @property
    def closed(self) -> bool:
        """Whether the client has gone."""
        return self._closed

    def fileno(self) -> int:
        """The socket's descriptor, to poll it."""
        return self._connection.fileno()

    @property
    def unsent_nbytes(self) -> int:
        """Bytes that the socket hasn't taken yet."""
        return len(self._unsent)

    def receive(self, *, block: bool, timeout_ms: int | None = None) -> list[Message]:
        """As `WorkerChannel.receive`. Raises ExecutionError where what arrives is no message."""
        waits = block
        while True:
            if self._unsent:
                self._push()
            messages = self._pull()
            if messages or self._closed or not waits:
                return messages
            # Whatever ends the wait, a time-out is over with it.
            waits = timeout_ms is None
            (self._either if self._unsent else self._readable).poll(timeout_ms)

    def send(self, messages: Sequence[ToProcess]) -> None:
        """As `WorkerChannel.send`."""
        if not self._closed:
            self._unsent += encode_batch(messages)
            self._push()

    def _push(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._connection.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._lose()

    def _pull(self) -> list[Message]:
        messages: list[Message] = []
        if not self._readable.poll(0):  # costs less than asking in vain
            return messages
        try:
            while not self._closed:
                received = self._connection.recv(_RECEIVE_NBYTES)
                if received:
                    messages += self._decoder.feed(received)
                else:
                    self._lose()
        except BlockingIOError:
            pass
        except OSError:
            self._lose()
        return messages

    def _lose(self) -> None:
        self._closed = True
        self._unsent.clear()

    def close(self) -> None:
        """Sends what is unsent, for as long as a client that still reads may take, and closes.
        Idempotent."""
        if self._connection.fileno() < 0:
            return
        deadline = time.monotonic() + _CLOSE_TIMEOUT_S
        writable = select.poll()
        writable.register(self._connection, select.POLLOUT)
        self._push()
        while self._unsent and (left := deadline - time.monotonic()) > 0:
            writable.poll(left * 1000)
            self._push()
        self._connection.close()
        self._lose()


class SocketChannel(SocketEnd[ToWorker]):
    """The worker's channel to its only client."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection, ToWorker)


class InProcessChannel:
    """Both ends within one process: the worker's thread receives and sends, other threads `post`.

    `deliver` takes each batch on the worker's thread; it must return at once.
    """

    def __init__(self, deliver: Callable[[Sequence[FromWorker]], None]) -> None:
        self._deliver = deliver
        self._arrived: list[ToWorker] = []
        self._wakeup = threading.Condition()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the client has closed the channel."""
        return self._closed

    def receive(self, *, block: bool, timeout_ms: int | None = None) -> list[ToWorker]:
        """As `WorkerChannel.receive`."""
        if not (block or self._arrived):
            return []
        timeout_s = None if timeout_ms is None else timeout_ms / 1e3
        with self._wakeup:
            if block:
                self._wakeup.wait_for(lambda: bool(self._arrived) or self._closed, timeout_s)
            arrived, self._arrived = self._arrived, []
            return arrived

    def send(self, messages: Sequence[FromWorker]) -> None:
        """As `WorkerChannel.send`."""
        if not self._closed:
            self._deliver(messages)

    def post(self, messages: Sequence[ToWorker]) -> None:
        """Sends a batch to the worker; thread-safe."""
        with self._wakeup:
            self._arrived.extend(messages)
            self._wakeup.notify()

    def close(self) -> None:
        """Tells the worker that the client has gone."""
        with self._wakeup:
            self._closed = True
            self._wakeup.notify()
