"""Writes contents to an entry folder, behind everybody's back: one thread and a bounded queue.

A content is handed over, or the writer reads it when its turn comes. The latter costs the
scheduler nothing and the queue no memory; it is for what can be read again for a while.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from helios.dataclass import dataclass
from helios.scheduler.cache.offload.contents import Content
from helios.scheduler.cache.offload.entry_folder import EntryFolder
from helios.scheduler.cache.offload.keys import Entry

Read = Callable[[Entry], Content | None]


@dataclass(frozen=True, slots=True)
class _Waiting:
    entry: Entry
    content: Content | None
    read: Read | None

    @property
    def held_nbytes(self) -> int:
        return 0 if self.content is None else self.entry.nbytes


class FileWriter:
    """`queue_nbytes` bounds the contents that wait; `dropped` counts those that it turned away, and
    those that nobody waited for at the end.
    What other engines did to the folder is looked for when there was nothing to do for
    `look_again_s`."""

    def __init__(self, folder: EntryFolder, queue_nbytes: int, look_again_s: float) -> None:
        self.dropped = 0
        self._folder = folder
        self._queue_nbytes = queue_nbytes
        self._changed = threading.Condition()
        self._queue: OrderedDict[bytes, _Waiting] = OrderedDict()
        self._held_nbytes = 0  # of the queue, and of what is being written
        self._look_again_s = look_again_s
        self._looking = False
        self._clearing = False
        self._busy = False
        self._closed = False
        self._deadline_s = 0.0  # on time.monotonic's clock: nothing is begun later, once closed
        self._thread = threading.Thread(target=self._run, name="helios-cache-writer", daemon=True)
        self._thread.start()

    def save(self, entry: Entry, content: Content) -> None:
        """Hands over a content, which must never change from now on. It is dropped where too much
        waits already, and where there is a file or will be."""
        with self._changed:
            known = self._queue.get(entry.key)
            if self._closed or entry.key in self._folder or (known and known.content is not None):
                return
            if self._held_nbytes + entry.nbytes > self._queue_nbytes:
                self.dropped += 1
                self._queue.pop(entry.key, None)  # nor can it be read later: it is evicted
                return
            self._held_nbytes += entry.nbytes
            self._queue[entry.key] = _Waiting(entry, content, None)
            self._changed.notify_all()

    def save_later(self, entry: Entry, read: Read) -> None:
        """Has the content read by the writer's thread; `read` says None where it is gone."""
        with self._changed:
            if self._closed or entry.key in self._folder or entry.key in self._queue:
                return
            self._queue[entry.key] = _Waiting(entry, None, read)
            self._changed.notify_all()

    def flush(self) -> None:
        """Waits until everything handed over so far is written or dropped."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._has_work() or self._busy))

    def look_again(self) -> None:
        """Has the thread find out what other engines did to the folder."""
        with self._changed:
            self._looking = True
            self._changed.notify_all()

    def clear(self) -> None:
        """Forgets everything now; the thread deletes the files."""
        with self._changed:
            self._held_nbytes -= sum(waiting.held_nbytes for waiting in self._queue.values())
            self._queue.clear()
            self._folder.forget()
            self._clearing = True
            self._changed.notify_all()

    def close(self, within_s: float) -> None:
        """Writes what is queued, as far as that is done in time; the rest is dropped. Doesn't wait
        longer for a disk that is stuck: what it holds up ends with the process. Idempotent."""
        with self._changed:
            if not self._closed:
                self._closed, self._deadline_s = True, time.monotonic() + within_s
            self._changed.notify_all()
        self._thread.join(max(self._deadline_s - time.monotonic(), 0.0))

    def _has_work(self) -> bool:
        return bool(self._queue or self._clearing or self._looking)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                woken = self._changed.wait_for(
                    lambda: self._has_work() or self._closed, self._look_again_s
                )
                if self._closed and time.monotonic() >= self._deadline_s:
                    self.dropped += len(self._queue)
                    self._queue.clear()
                if self._closed and not self._has_work():
                    return
                self._busy = True
                clearing, looking = self._clearing, self._looking or not woken
                self._clearing = self._looking = False
                waiting = None
                if not (clearing or looking):
                    _, waiting = self._queue.popitem(last=False)
            if clearing:
                self._folder.clear()
            elif waiting is not None:
                self._write(waiting)
            elif self._folder.is_changed():
                self._folder.list_again()

    def _write(self, waiting: _Waiting) -> None:
        content = waiting.content
        if content is None and waiting.read is not None:
            content = waiting.read(waiting.entry)
        if content is not None:
            self._folder.write(waiting.entry, content)
        with self._changed:
            self._held_nbytes -= waiting.held_nbytes
