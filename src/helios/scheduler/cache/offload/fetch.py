"""Contents on their way from the second tier: asked for in order, handed out as they arrive.

A `Fetch` is filled by the file tier's reading thread and polled by the scheduler, which never
waits, and gives up on what takes too long. Contents come in the order of the entries and end
before the first that can't be had.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence

from helios.scheduler.cache.offload.contents import Content
from helios.scheduler.cache.offload.keys import Entry


class Fetch:
    """`ready` holds contents that are there already, by index. The reader runs ahead of `poll` by
    `ahead_nbytes` at most. `condition` guards it, and is notified when there is more to read.
    Where nothing arrives for `patience_s` seconds it ends: who asked computes the rest."""

    def __init__(
        self,
        entries: Sequence[Entry],
        ready: Mapping[int, Content],
        condition: threading.Condition,
        ahead_nbytes: int,
        patience_s: float = math.inf,
    ) -> None:
        self._entries = tuple(entries)
        self._arrived = dict(ready)
        self._condition = condition
        self._ahead_nbytes = ahead_nbytes
        self._patience_s = patience_s
        self._last_s = time.monotonic()  # when something arrived or was handed out
        self._given = 0  # contents handed out
        self._end = len(self._entries)  # where contents end
        self._cursor = 0  # everything before it has arrived
        self._from_files: set[int] = set()
        self._waiting_nbytes = 0  # read from files and not handed out

    # ------------------------------------------------------------ the scheduler's side

    @property
    def given(self) -> int:
        """Contents handed out."""
        return self._given

    @property
    def finished(self) -> bool:
        """Whether everything that comes has been handed out, or nothing has come for too long."""
        with self._condition:
            missing = self._given != self._end and self._given not in self._arrived
            if missing and time.monotonic() - self._last_s >= self._patience_s:
                self._cancel()
            return self._given == self._end

    def poll(self) -> Content | None:
        """The next content, if it has arrived."""
        with self._condition:
            if self._given == self._end or self._given not in self._arrived:
                return None
            content = self._arrived.pop(self._given)
            if self._given in self._from_files:
                self._waiting_nbytes -= self._entries[self._given].nbytes
                self._condition.notify_all()
            self._given += 1
            self._last_s = time.monotonic()
            return content

    def wait(self, timeout_ms: int) -> None:
        """Waits at most so long for something to arrive, or for the end."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._given == self._end or self._given in self._arrived, timeout_ms / 1000
            )

    def cancel(self) -> None:
        """Nothing more is wanted."""
        with self._condition:
            self._cancel()

    def _cancel(self) -> None:
        self._end = self._given
        self._arrived.clear()

    # ------------------------------------------------------------ the reader's side

    # All of it is called with the condition held.

    def is_read(self) -> bool:
        """Whether nothing is left to read."""
        while self._cursor < self._end and self._has_arrived(self._cursor):
            self._cursor += 1
        return self._cursor >= self._end

    def next_to_read(self) -> int | None:
        """The index of the next entry to read now; None where none is, or not yet."""
        if self.is_read() or self._waiting_nbytes >= self._ahead_nbytes:
            return None
        return self._cursor

    def stop(self) -> None:
        """Nothing more is read: contents end where the next would have been."""
        if not self.is_read():
            self.deliver(self._cursor, None)

    def entry(self, index: int) -> Entry:
        """What to read."""
        return self._entries[index]

    def deliver(self, index: int, content: Content | None) -> None:
        """What was read; None ends the contents before it."""
        if index >= self._end:
            return
        if content is None:
            self._end = index
            for later in [key for key in self._arrived if key >= index]:
                del self._arrived[later]
            return
        self._last_s = time.monotonic()
        self._arrived[index] = content
        self._from_files.add(index)
        self._waiting_nbytes += self._entries[index].nbytes

    def _has_arrived(self, index: int) -> bool:
        return index < self._given or index in self._arrived
