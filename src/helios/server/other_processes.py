"""The HTTP processes beside the first one: started, watched, started again, told to end.

The first process serves like the others and owns what there is one of: the worker, the signals,
and each other process's place, with its listening socket. A process that dies gives back its
permits, its requests are cancelled (`worker.connections`), and another one takes its place; what
waits on its socket waits for that one. One that dies before it serves is tried again after a
while, and has no socket meanwhile, so that no connection waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import pickle
import socket
from asyncio.subprocess import PIPE, Process
from contextlib import ExitStack
from typing import Final

from helios.server.child_order import CHILD_COMMAND, SERVES, STOP, ChildOrder
from helios.server.listeners import beside
from helios.server.server import ServerOptions
from helios.server.shared_permits import SharedPermits
from helios.worker.connections import hand_in
from helios.worker.process_numbers import FIRST_PROCESS

_log = logging.getLogger(__name__)

_LONGEST_PAUSE_S: Final = 30.0
# After a process has been told to end; those that were told with this one are through before.
_END_SECONDS: Final = 3.0


class OtherProcesses:
    """Use `start` once the worker is ready, then `stop` as often as the first process is asked to,
    then `end`. All on the event loop's thread."""

    def __init__(
        self, options: ServerOptions, door: socket.socket, listener: socket.socket
    ) -> None:
        """Raises HeliosError where permits can't be shared."""
        self.permits = SharedPermits.create(options.http_workers)
        self._options = options
        self._door = door
        self._listener = listener
        self._created = 0
        self._numbers = itertools.count(FIRST_PROCESS + 1)
        self._places = [_Place(cell) for cell in range(1, options.http_workers)]
        self._watching: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    async def start(self, created: int) -> int:
        """Starts every process, and returns how many serve once all do or have failed to."""
        self._created = created
        self._watching = [asyncio.create_task(self._watch(place)) for place in self._places]
        await asyncio.gather(*(place.tried.wait() for place in self._places))
        return sum(place.serves for place in self._places)

    def stop(self) -> None:
        """Tells every process what a signal would."""
        self._stopping.set()
        for place in self._places:
            if place.control is not None:
                place.control.write(STOP)

    async def end(self, patience_s: float = 0.0) -> None:
        """Returns once no process is left. Those that have been told to stop get `patience_s` for
        what they still answer; those that take too long after that are killed. Idempotent."""
        self._stopping.set()
        if patience_s and self._watching:
            await asyncio.wait(self._watching, timeout=patience_s)
        for place in self._places:
            if place.control is not None:
                place.control.close()
            elif place.process is None:
                place.tried.set()
        if self._watching:
            _, late = await asyncio.wait(self._watching, timeout=_END_SECONDS)
            for place in self._places:
                if place.process is not None:
                    place.process.kill()
            for task in late:
                task.cancel()
            await asyncio.gather(*self._watching, return_exceptions=True)

    # ------------------------------------------------------------ one process

    async def _watch(self, place: _Place) -> None:
        """Keeps a process in this place until the end."""
        failures = 0
        while not self._stopping.is_set():
            try:
                status: object = await self._run(place)
            except OSError as error:  # the system has no process or socket left to give
                status = error.strerror
            self.permits.reclaim(place.cell)
            served, place.serves = place.serves, False
            place.tried.set()
            if self._stopping.is_set():
                break
            failures = 0 if served else failures + 1
            pause = 0.0 if served else min(2.0**failures, _LONGEST_PAUSE_S)
            _log.error(
                "HTTP process %d of %d ended with status %s and is started again%s",
                place.cell + 1,
                self._options.http_workers,
                status,
                f" in {pause:g} s" if pause else "",
            )
            if pause:
                place.close_listener()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), pause)
        place.close_listener()

    async def _run(self, place: _Place) -> int:
        """Runs a process to its end; its status. Raises OSError where there can't be one."""
        try:
            reader, process = await self._begin(place)
            place.serves = await reader.read(1) == SERVES
            if place.serves:
                place.tried.set()
            return await process.wait()
        finally:
            place.leave()

    async def _begin(self, place: _Place) -> tuple[asyncio.StreamReader, Process]:
        """Starts a process, with sockets to the worker and to this one."""
        with ExitStack() as theirs:
            number = next(self._numbers)
            connection, other_end = socket.socketpair()
            theirs.enter_context(connection)
            with other_end:
                hand_in(self._door, number, other_end)
            ours, control = socket.socketpair()
            theirs.enter_context(control)
            reader, place.control = await asyncio.open_connection(sock=ours)
            order = ChildOrder(
                options=self._options,
                number=number,
                cell=place.cell,
                listener=place.listener_beside(self._listener).fileno(),
                connection=connection.fileno(),
                permits=self.permits.descriptor,
                control=control.fileno(),
                created=self._created,
            )
            place.process = await _started(order)
            return reader, place.process


class _Place:
    """One other process, whichever it is now."""

    def __init__(self, cell: int) -> None:
        self.cell = cell
        self.serves = False
        self.tried = asyncio.Event()
        self.process: Process | None = None
        self.control: asyncio.StreamWriter | None = None
        self._listener: socket.socket | None = None

    def listener_beside(self, first: socket.socket) -> socket.socket:
        """The place's listening socket, which outlives its processes."""
        if self._listener is None:
            self._listener = beside(first)
        return self._listener

    def leave(self) -> None:
        """Its process has ended."""
        if self.control is not None:
            self.control.close()
        self.control = self.process = None

    def close_listener(self) -> None:
        """Connections go to the others from now on."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None


async def _started(order: ChildOrder) -> Process:
    inherited = (order.listener, order.connection, order.permits, order.control)
    process = await asyncio.create_subprocess_exec(*CHILD_COMMAND, stdin=PIPE, pass_fds=inherited)
    assert process.stdin is not None
    # By a pipe, since options may hold secrets, which command lines show to everybody.
    process.stdin.write(pickle.dumps(order))
    process.stdin.close()
    return process
