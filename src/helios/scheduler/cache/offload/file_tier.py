"""The file tier: contents in a folder, written behind by one thread and read ahead by another.

The scheduler asks and hands over, and never waits for a disk. What the writer can't keep up with
isn't kept, and counted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from helios.scheduler.cache.offload.contents import Content
from helios.scheduler.cache.offload.entry_folder import EntryFolder, FolderCounters
from helios.scheduler.cache.offload.fetch import Fetch
from helios.scheduler.cache.offload.keys import Entry

QUEUE_NBYTES: Final = 256 << 20
AHEAD_NBYTES: Final = 64 << 20


class FileTier:
    """At most `limit_nbytes` of files in `folder`. `queue_nbytes` bounds what waits for the
    writer, `ahead_nbytes` what one fetch has read and nobody polled. Call `close`."""

    def __init__(
        self,
        folder: Path,
        limit_nbytes: int,
        *,
        queue_nbytes: int = QUEUE_NBYTES,
        ahead_nbytes: int = AHEAD_NBYTES,
    ) -> None:
        self._folder = EntryFolder(folder, limit_nbytes)
        self._queue_nbytes = queue_nbytes
        self._ahead_nbytes = ahead_nbytes
        self.dropped = 0
        # Guards the queue and the fetches; the folder's files are touched without it.
        self._changed = threading.Condition()
        self._queue: deque[tuple[Entry, Content]] = deque()
        self._queued: set[bytes] = set()
        self._queued_nbytes = 0
        self._fetches: deque[Fetch] = deque()
        self._closed = False
        self._writer = threading.Thread(target=self._write, name="helios-cache-writer", daemon=True)
        self._reader = threading.Thread(target=self._read, name="helios-cache-reader", daemon=True)
        self._writer.start()
        self._reader.start()

    # ------------------------------------------------------------ questions

    def __contains__(self, key: bytes) -> bool:
        """Whether there is a file, as far as is known."""
        return key in self._folder

    def lengths_after(self, node: bytes) -> list[int]:
        """Lengths of the snapshots known at a node."""
        return self._folder.lengths_after(node)

    @property
    def nbytes(self) -> int:
        """Bytes of the known files."""
        return self._folder.nbytes

    def __len__(self) -> int:
        """Known files."""
        return len(self._folder)

    @property
    def counters(self) -> FolderCounters:
        """What became of files."""
        return self._folder.counters

    # ------------------------------------------------------------ contents

    def can_save(self, entry: Entry) -> bool:
        """Whether the writer's queue has room for the entry."""
        with self._changed:
            return self._queued_nbytes + entry.nbytes <= self._queue_nbytes

    def save(self, entry: Entry, content: Content) -> None:
        """Hands a content, which must never change from now on, to the writer. It is dropped
        where the queue is full, and where there is a file already."""
        with self._changed:
            if self._closed or entry.key in self._queued or entry.key in self._folder:
                return
            if self._queued_nbytes + entry.nbytes > self._queue_nbytes:
                self.dropped += 1
                return
            self._queue.append((entry, content))
            self._queued.add(entry.key)
            self._queued_nbytes += entry.nbytes
            self._changed.notify_all()

    def fetch(self, entries: Sequence[Entry], ready: Mapping[int, Content] | None = None) -> Fetch:
        """The contents of entries, in order, read in the background; `ready` are those that are
        there already, by index. After `close` nothing more is read."""
        fetch = Fetch(entries, ready or {}, self._changed, self._ahead_nbytes)
        with self._changed:
            self._fetches.append(fetch)
            if self._closed:
                self._stop_fetches()
            self._changed.notify_all()
        return fetch

    def flush(self) -> None:
        """Waits until everything handed over so far is written or dropped."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queued or self._closed)

    def clear(self) -> None:
        """Deletes all files, whoever wrote them. Waits for the writer."""
        self.flush()
        self._folder.clear()

    def close(self) -> None:
        """Writes what is queued, ends fetches and threads. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._writer.join()
        self._reader.join()

    # ------------------------------------------------------------ threads

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
                entry, content = self._queue.popleft()
            self._folder.write(entry, content)
            with self._changed:
                self._queued.discard(entry.key)
                self._queued_nbytes -= entry.nbytes
                self._changed.notify_all()

    def _read(self) -> None:
        while True:
            with self._changed:
                while (found := self._next_read()) is None and not self._closed:
                    self._changed.wait()
                if found is None or self._closed:
                    self._stop_fetches()
                    self._changed.notify_all()
                    return
            fetch, index = found
            content = self._folder.read(fetch.entry(index))
            with self._changed:
                fetch.deliver(index, content)
                self._changed.notify_all()

    def _next_read(self) -> tuple[Fetch, int] | None:
        """The next entry to read; fetches take turns. Called with the condition held."""
        for _ in range(len(self._fetches)):
            fetch = self._fetches.popleft()
            if fetch.is_read():
                continue
            self._fetches.append(fetch)
            index = fetch.next_to_read()
            if index is not None:
                return fetch, index
        return None

    def _stop_fetches(self) -> None:
        """Nothing more is read. Called with the condition held."""
        for fetch in self._fetches:
            fetch.stop()
        self._fetches.clear()
