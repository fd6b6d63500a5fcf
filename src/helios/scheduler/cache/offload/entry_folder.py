"""A folder of content files that several engines may share: what is there, bounded in size.

The index is this process's view and may be behind: others write and delete too, and so may anybody
with a shell. It is corrected by listing the folder again, whenever much has been written and before
anything is deleted for room. A file's modification time says when it was used last. Damaged files
are deleted; files with other names are left alone. No error of the file system gets out of here:
it is counted, and the content is not kept or not found.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from helios.dataclass import dataclass
from helios.scheduler.cache.offload.contents import Content
from helios.scheduler.cache.offload.file_format import (
    HEADER_NBYTES,
    TEMPORARY_SUFFIX,
    DamagedFileError,
    file_name,
    named_entry,
    read_file,
    write_file,
)
from helios.scheduler.cache.offload.keys import Entry
from helios.scheduler.cache.offload.lengths import SnapshotLengths
from helios.scheduler.cache.offload.private_folder import refuse_shared

# What one deletion frees beyond its need, and what may be written before the folder is listed
# again: this share of the limit. So with n engines the folder may pass its limit by n such shares.
_SLACK: Final = 16
_COARSE_NS: Final = 2_000_000_000
_ABANDONED_S: Final = 3600  # a temporary file this old is nobody's

_log: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class FolderCounters:
    """Counts since start, and the bytes of contents written and read. `missing` entries were
    deleted by others; `foreign` is how many files with other names the last listing saw."""

    written: int = 0
    written_nbytes: int = 0
    write_failures: int = 0
    read: int = 0
    read_nbytes: int = 0
    read_failures: int = 0
    missing: int = 0
    damaged: int = 0
    evicted: int = 0
    foreign: int = 0


class EntryFolder:
    """At most `limit_nbytes` of files in `folder`, which is made where it is missing. Writing and
    `list_again` are for one thread, reading for one; questions for any. Raises HeliosError for a
    folder that other users may write to: checksums tell damage, not who wrote."""

    def __init__(self, folder: Path, limit_nbytes: int) -> None:
        self.folder = folder
        self.limit_nbytes = limit_nbytes
        self.counters = FolderCounters()
        # As `list_again` found them, least recently used first, and what was written since.
        self._entries: dict[bytes, Entry] = {}
        self._lengths = SnapshotLengths()
        self._nbytes = 0
        self._written_since = 0
        # The folder's modification time before the last listing, and when that was.
        self._modified_ns = self._listed_ns = 0
        self._complained = False
        self._lock = threading.Lock()  # guards the index, never held while a file is touched
        self._make()
        refuse_shared(folder)
        self.list_again()

    @property
    def nbytes(self) -> int:
        """Bytes of the known files."""
        return self._nbytes

    def __len__(self) -> int:
        """Known entries."""
        return len(self._entries)

    def __contains__(self, key: bytes) -> bool:
        """Whether a file is known."""
        return key in self._entries

    def lengths_after(self, node: bytes) -> list[int]:
        """Lengths of the snapshots known at a node."""
        return self._lengths.after(node)

    # ------------------------------------------------------------ contents

    def write(self, entry: Entry, content: Content) -> bool:
        """Whether the content is kept now; known ones aren't written again."""
        if entry.key in self._entries:
            return True
        nbytes = HEADER_NBYTES + entry.nbytes
        if nbytes > self.limit_nbytes:
            return False
        if self._written_since > self.limit_nbytes // _SLACK:
            self.list_again()
        if self._nbytes + nbytes > self.limit_nbytes:
            self._make_room(nbytes)
        try:
            write_file(self.folder, entry, content)
        except OSError as error:
            self.counters.write_failures += 1
            self._complain("can't be written to", error)
            self._make()
            return False
        self._add(entry)
        self._written_since += nbytes
        self.counters.written += 1
        self.counters.written_nbytes += entry.nbytes
        return True

    def read(self, entry: Entry) -> bytearray | None:
        """A content, checked, and counted as used; None where there is none that is right."""
        try:
            content = read_file(self.folder, entry)
        except FileNotFoundError:
            self.counters.missing += 1
            self._remove(entry.key)
            return None
        except DamagedFileError as error:
            _log.warning("%s is damaged (%s) and dropped", file_name(entry), error)
            self.counters.damaged += 1
            self._delete(entry)
            return None
        except OSError as error:
            self.counters.read_failures += 1
            self._complain("can't be read", error)
            self._remove(entry.key)
            return None
        with suppress(OSError):
            os.utime(self.folder / file_name(entry))
        self.counters.read += 1
        self.counters.read_nbytes += entry.nbytes
        return content

    def stalled(self) -> None:
        """A content was wanted while a read hangs."""
        self.counters.read_failures += 1
        self._complain("doesn't answer", TimeoutError("a read hangs"))

    def forget(self) -> None:
        """Knows of no file until the folder is listed again or `clear` has deleted them."""
        with self._lock:
            self._entries, self._lengths, self._nbytes = {}, SnapshotLengths(), 0

    def clear(self) -> None:
        """Deletes every content file, whoever wrote it. For the writing thread. None is known
        meanwhile: a fetch must not find what is about to go."""
        self.forget()
        try:
            with os.scandir(self.folder) as files:
                for file in files:
                    with suppress(OSError):
                        entry = named_entry(file.name, file.stat(follow_symlinks=False).st_size)
                        if entry is not None:
                            self._delete(entry)
        except OSError as error:
            self._complain("can't be listed", error)

    # ------------------------------------------------------------ what is there

    def list_again(self) -> None:
        """Takes stock of the folder; deletes what others left half written long ago."""
        found: list[tuple[float, Entry]] = []
        foreign = 0
        self._modified_ns, self._listed_ns = self._modification_ns(), time.time_ns()
        try:
            with os.scandir(self.folder) as files:
                for file in files:
                    with suppress(OSError):
                        status = file.stat(follow_symlinks=False)
                        entry = named_entry(file.name, status.st_size)
                        if entry is not None:
                            found.append((status.st_mtime, entry))
                        elif not file.name.endswith(TEMPORARY_SUFFIX):
                            foreign += 1
                        elif status.st_mtime < time.time() - _ABANDONED_S:
                            os.unlink(file.path)
        except OSError as error:
            self._complain("can't be listed", error)
        found.sort(key=lambda item: item[0])
        entries = {entry.key: entry for _, entry in found}
        lengths = SnapshotLengths()
        for entry in entries.values():
            lengths.add(entry)
        with self._lock:
            self._entries, self._lengths = entries, lengths
            self._nbytes = sum(HEADER_NBYTES + entry.nbytes for entry in entries.values())
        self._written_since = 0
        self.counters.foreign = foreign

    def is_changed(self) -> bool:
        """Whether files may have come or gone since the folder was listed, by anybody's doing.
        Modification times are coarse, so a change just before the listing may hide a later one."""
        settled = self._modified_ns < self._listed_ns - _COARSE_NS
        return not settled or self._modification_ns() != self._modified_ns

    def _modification_ns(self) -> int:
        try:
            return self.folder.stat().st_mtime_ns
        except OSError:
            return 0

    def _make_room(self, nbytes: int) -> None:
        """Deletes what was used longest ago, by anybody, and somewhat more than needed."""
        self.list_again()
        goal = self.limit_nbytes - max(nbytes, self.limit_nbytes // _SLACK)
        while self._nbytes > goal:
            with self._lock:
                entry = next(iter(self._entries.values()), None)
            if entry is None:
                return
            self._delete(entry)
            self.counters.evicted += 1

    def _add(self, entry: Entry) -> None:
        self._remove(entry.key)
        with self._lock:
            self._entries[entry.key] = entry
            self._lengths.add(entry)
            self._nbytes += HEADER_NBYTES + entry.nbytes

    def _remove(self, key: bytes) -> None:
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None:
                self._lengths.remove(entry)
                self._nbytes -= HEADER_NBYTES + entry.nbytes

    def _delete(self, entry: Entry) -> None:
        with suppress(OSError):
            (self.folder / file_name(entry)).unlink()
        self._remove(entry.key)

    def _make(self) -> None:
        """Makes the folder, for this user alone."""
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _complain(self, what: str, error: OSError) -> None:
        """Says so once; the counters tell how often."""
        if not self._complained:
            self._complained = True
            _log.warning("the prompt cache %s %s (%s)", self.folder, what, error)
