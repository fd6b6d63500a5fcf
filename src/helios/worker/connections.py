"""The worker's end of several connections: one from each HTTP process, seen as one channel.

The first process's connection is there from the start, and the worker ends with it. It hands the
others in through a *door*, a datagram socket that carries a connection and its process's number.
Events go to the process that their request's id names. A connection that closes cancels its own
requests and nothing else. What processes ask each other (`Ask`) is relayed here; the worker's loop
never sees it.
"""

from __future__ import annotations

import select
import socket
import struct
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import field
from typing import Final

from helios.dataclass import dataclass
from helios.worker.channel import SocketEnd
from helios.worker.messages import (
    BooksBroken,
    Cancel,
    FailedEvent,
    FromWorker,
    PrefixCacheReset,
    Progress,
    ReadProgress,
    ReadStatistics,
    RejectedEvent,
    ResetPrefixCache,
    Shutdown,
    Statistics,
    Submit,
    Taken,
    TokensEvent,
    ToWorker,
    WorkerFailed,
    WorkerReady,
)
from helios.worker.peer_messages import Ask, Asked, AskedAnswer, AskResult, FromProcess
from helios.worker.process_numbers import FIRST_PROCESS, process_of
from helios.worker.request_events import ends

_NUMBER: Final = struct.Struct("<I")
_ANSWERED_BY: Final[dict[type, type]] = {
    ReadStatistics: Statistics,
    ResetPrefixCache: PrefixCacheReset,
    ReadProgress: Progress,
}


def hand_in(door: socket.socket, process: int, connection: socket.socket) -> None:
    """Gives the worker a process's connection; the caller's copy may be closed then."""
    socket.send_fds(door, [_NUMBER.pack(process)], [connection.fileno()])


class ProcessConnection(SocketEnd[FromProcess]):
    """The connection of one HTTP process."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection, FromProcess)


@dataclass(slots=True)
class _Relayed:
    """A question on its way: who hasn't answered, and what the others said."""

    missing: set[int]
    answers: list[bytes] = field(default_factory=list)


class ConnectionsChannel:
    """A `WorkerChannel` over the connection of the first process and those that come in by `door`,
    all of which it owns from now on."""

    def __init__(self, first: ProcessConnection, door: socket.socket) -> None:
        door.setblocking(False)
        self._door = door
        self._channels = {FIRST_PROCESS: first}
        self._live: dict[int, set[int]] = {FIRST_PROCESS: set()}
        # Who waits for answers of a kind, in the order in which the loop will give them.
        self._askers: defaultdict[type, deque[int]] = defaultdict(deque)
        self._relayed: dict[tuple[int, int], _Relayed] = {}
        # What every process has to know, those that come later too.
        self._standing: list[FromWorker] = []

    @property
    def closed(self) -> bool:
        """Whether the first process has gone."""
        return FIRST_PROCESS not in self._channels

    # ------------------------------------------------------------ to the worker

    def receive(self, *, block: bool, timeout_ms: int | None = None) -> list[ToWorker]:
        """As `WorkerChannel.receive`, from all connections."""
        waits = block
        while True:
            messages = self._pull()
            if messages or self.closed or not waits:
                return messages
            # Whatever ends the wait, a time-out is over with it.
            waits = timeout_ms is None
            self._poll(timeout_ms)

    def _pull(self) -> list[ToWorker]:
        self._look_at_door()
        messages: list[ToWorker] = []
        for process, channel in list(self._channels.items()):
            for message in channel.receive(block=False):
                passed = self._for_worker(process, message)
                if passed is not None:
                    messages.append(passed)
            if channel.closed:
                messages += self._lose(process)
        return messages

    def _poll(self, timeout_ms: int | None) -> None:
        poll = select.poll()
        poll.register(self._door, select.POLLIN)
        for channel in self._channels.values():
            events = select.POLLIN | (select.POLLOUT if channel.unsent_nbytes else 0)
            poll.register(channel, events)
        poll.poll(timeout_ms)

    def _look_at_door(self) -> None:
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._door, _NUMBER.size, 1)
            except BlockingIOError:
                return
            if not data:  # the first process has gone, as its connection tells, too
                return
            (process,) = _NUMBER.unpack(data)
            channel = ProcessConnection(socket.socket(fileno=descriptors[0]))
            self._channels[process] = channel
            self._live[process] = set()
            if self._standing:
                channel.send(self._standing)

    def _for_worker(self, process: int, message: FromProcess) -> ToWorker | None:
        """A message if it is for the worker; notes who will want the answer."""
        match message:
            case Submit():
                self._live[process].add(message.request_id)
            case ReadStatistics() | ResetPrefixCache() | ReadProgress():
                self._askers[_ANSWERED_BY[type(message)]].append(process)
            case Shutdown() if process != FIRST_PROCESS:
                return None
            case Ask():
                self._relay(process, message)
                return None
            case AskedAnswer():
                self._take_answer(process, (message.asker, message.ask), message.payload)
                return None
        return message

    def _lose(self, process: int) -> list[ToWorker]:
        """Forgets a process; what ends its requests."""
        self._channels.pop(process).close()
        for relayed in [key for key, one in self._relayed.items() if process in one.missing]:
            self._take_answer(process, relayed, None)
        return [Cancel(request_id) for request_id in self._live.pop(process)]

    # ------------------------------------------------------------ between processes

    def _relay(self, asker: int, ask: Ask) -> None:
        others = set(self._channels) - {asker}
        relayed = self._relayed[asker, ask.ask] = _Relayed(others)
        for process in others:
            self._channels[process].send([Asked(asker, ask.ask, ask.kind, ask.payload)])
        self._finish((asker, ask.ask), relayed)

    def _take_answer(self, process: int, key: tuple[int, int], answer: bytes | None) -> None:
        """`process` has answered, or can't any more."""
        relayed = self._relayed.get(key)
        if relayed is None or process not in relayed.missing:
            return
        relayed.missing.discard(process)
        if answer is not None:
            relayed.answers.append(answer)
        self._finish(key, relayed)

    def _finish(self, key: tuple[int, int], relayed: _Relayed) -> None:
        if relayed.missing:
            return
        del self._relayed[key]
        asker, ask = key
        if asker in self._channels:
            self._channels[asker].send([AskResult(ask, relayed.answers)])

    # ------------------------------------------------------------ from the worker

    def send(self, messages: Sequence[FromWorker]) -> None:
        """As `WorkerChannel.send`: each message to whom it is for."""
        batches: dict[int, list[FromWorker]] = {process: [] for process in self._channels}
        for message in messages:
            if isinstance(message, TokensEvent | RejectedEvent | FailedEvent):
                process = process_of(message.request_id)
                if ends(message) and process in self._live:
                    self._live[process].discard(message.request_id)
            elif isinstance(message, Taken):
                process = process_of(message.request_id)
            elif isinstance(message, WorkerReady | WorkerFailed | BooksBroken):
                self._standing.append(message)
                for batch in batches.values():
                    batch.append(message)
                continue
            else:
                process = self._askers[type(message)].popleft()
            if process in batches:
                batches[process].append(message)
        for process, batch in batches.items():
            if batch:
                self._channels[process].send(batch)

    def close(self) -> None:
        """Sends what is unsent, as `SocketEnd.close`, and closes every connection."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        self._door.close()
