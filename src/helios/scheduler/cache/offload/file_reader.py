"""Reads contents from an entry folder ahead of who asked for them: one thread, fetches in turns.

A read can hang for ever, as on a network's disk that has gone. Nobody waits for it then: what is
asked for meanwhile is not there.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence

from helios.scheduler.cache.offload.contents import Content
from helios.scheduler.cache.offload.entry_folder import EntryFolder
from helios.scheduler.cache.offload.fetch import Fetch
from helios.scheduler.cache.offload.keys import Entry


class FileReader:
    """`ahead_nbytes` bounds what one fetch has read and nobody polled; a read is waited for
    `patience_s` seconds."""

    def __init__(self, folder: EntryFolder, ahead_nbytes: int, patience_s: float) -> None:
        self._folder = folder
        self._ahead_nbytes = ahead_nbytes
        self._patience_s = patience_s
        self._reading_since_s: float | None = None
        self._changed = threading.Condition()
        self._fetches: deque[Fetch] = deque()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="helios-cache-reader", daemon=True)
        self._thread.start()

    def fetch(self, entries: Sequence[Entry], ready: Mapping[int, Content]) -> Fetch:
        """Begins to read entries in order; `ready` are contents that are there already, by index.
        After `close` nothing more is read, nor while a read hangs."""
        fetch = Fetch(entries, ready, self._changed, self._ahead_nbytes, self._patience_s)
        with self._changed:
            since_s = self._reading_since_s
            if since_s is not None and time.monotonic() - since_s >= self._patience_s:
                self._folder.stalled()
                fetch.stop()
            self._fetches.append(fetch)
            if self._closed:
                self._stop()
            self._changed.notify_all()
        return fetch

    def cancel(self) -> None:
        """Ends every fetch."""
        with self._changed:
            for fetch in self._fetches:
                fetch.cancel()

    def close(self, within_s: float) -> None:
        """Ends the fetches where they are, and the thread; it isn't waited for any longer where the
        disk is stuck. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(within_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                while (found := self._next()) is None and not self._closed:
                    self._changed.wait()
                if found is None or self._closed:
                    self._stop()
                    return
                self._reading_since_s = time.monotonic()
            fetch, index = found
            content = self._folder.read(fetch.entry(index))
            with self._changed:
                self._reading_since_s = None
                fetch.deliver(index, content)
                self._changed.notify_all()

    # Both are called with the condition held.

    def _next(self) -> tuple[Fetch, int] | None:
        """The next entry to read."""
        for _ in range(len(self._fetches)):
            fetch = self._fetches.popleft()
            if fetch.is_read():
                continue
            self._fetches.append(fetch)
            index = fetch.next_to_read()
            if index is not None:
                return fetch, index
        return None

    def _stop(self) -> None:
        """Nothing more is read."""
        for fetch in self._fetches:
            fetch.stop()
        self._fetches.clear()
        self._changed.notify_all()
