"""The file tier: contents in a folder, written behind by one thread and read ahead by another.

The scheduler asks and hands over, and never waits for a disk. What the writer can't keep up with
isn't kept, and counted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from helios.scheduler.cache.offload.contents import Content
from helios.scheduler.cache.offload.entry_folder import EntryFolder, FolderCounters
from helios.scheduler.cache.offload.fetch import Fetch
from helios.scheduler.cache.offload.file_reader import FileReader
from helios.scheduler.cache.offload.file_writer import FileWriter, Read
from helios.scheduler.cache.offload.keys import Entry

QUEUE_NBYTES: Final = 256 << 20
AHEAD_NBYTES: Final = 64 << 20
LOOK_AGAIN_S: Final = 60.0
CLOSING_S: Final = 1.0
PATIENCE_S: Final = 5.0


class FileTier:
    """At most `limit_nbytes` of files in `folder`. `queue_nbytes` bounds contents that wait for
    the writer, `ahead_nbytes` what one fetch has read and nobody polled; what other engines wrote
    is known `look_again_s` later at most, if the writer isn't busy. A read that takes `patience_s`
    is waited for no longer. Call `close`."""

    def __init__(
        self,
        folder: Path,
        limit_nbytes: int,
        *,
        queue_nbytes: int = QUEUE_NBYTES,
        ahead_nbytes: int = AHEAD_NBYTES,
        look_again_s: float = LOOK_AGAIN_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._folder = EntryFolder(folder, limit_nbytes)
        self._writer = FileWriter(self._folder, queue_nbytes, look_again_s)
        self._reader = FileReader(self._folder, ahead_nbytes, patience_s)

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

    @property
    def limit_nbytes(self) -> int:
        """Bytes that the files may take."""
        return self._folder.limit_nbytes

    def __len__(self) -> int:
        """Known files."""
        return len(self._folder)

    @property
    def counters(self) -> FolderCounters:
        """What became of files."""
        return self._folder.counters

    @property
    def dropped(self) -> int:
        """Contents that weren't kept because the writer was behind."""
        return self._writer.dropped

    def save(self, entry: Entry, content: Content) -> None:
        """Hands a content, which must never change from now on, to the writer. It is dropped
        where too much waits already, and where there is a file or will be."""
        self._writer.save(entry, content)

    def save_later(self, entry: Entry, read: Read) -> None:
        """Has the content read by the writer's thread; `read` says None where it is gone."""
        self._writer.save_later(entry, read)

    def fetch(self, entries: Sequence[Entry], ready: Mapping[int, Content] | None = None) -> Fetch:
        """Begins to read entries in order; `ready` are contents that are there already, by index.
        After `close` nothing more is read."""
        return self._reader.fetch(entries, ready or {})

    def flush(self) -> None:
        """Waits until everything handed over so far is written or dropped."""
        self._writer.flush()

    def look_again(self) -> None:
        """Finds out, in the background, what other engines wrote and deleted."""
        self._writer.look_again()

    def clear(self) -> None:
        """Forgets everything now; all files, whoever wrote them, are deleted in the background."""
        self._reader.cancel()
        self._writer.clear()

    def close(self, within_s: float = CLOSING_S) -> None:
        """Writes what is queued, as far as there is time, and ends fetches and threads. Returns
        soon after `within_s` whatever the disk does. Idempotent."""
        ends_s = time.monotonic() + within_s
        self._reader.close(within_s)
        self._writer.close(max(ends_s - time.monotonic(), 0.0))
