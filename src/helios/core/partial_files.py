"""Files that are being filled: locked by one process at a time, taken up where an earlier one
stopped, and never anything but plain files of our own.

What else lies in such a place (a folder, a pipe, a device, a link, a file that has another name
too) is neither written nor followed: `clear_place` makes room. `cache` is the caller.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from helios.core.chunks import Committed, damaged_chunks
from helios.core.format import CHUNK_NBYTES

_log: Final = logging.getLogger(__name__)


class Identity(NamedTuple):
    """Tells what lies in a place from what replaces it. `plain` if it is a file."""

    device: int
    inode: int
    changed_ns: int
    nbytes: int
    plain: bool


def identity(path: Path) -> Identity | None:
    """What lies there, no link followed; None where nothing does, or nobody may look."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return Identity(
        status.st_dev,
        status.st_ino,
        status.st_mtime_ns,
        status.st_size,
        stat.S_ISREG(status.st_mode),
    )


def clear_place(path: Path) -> None:
    """Frees a name for a file of ours. Of a link, the link is removed; a folder with something in
    it, which only a person can have put there, is kept beside it under another name."""
    try:
        path.unlink(missing_ok=True)
        return
    except IsADirectoryError:
        pass
    try:
        path.rmdir()
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        aside = path.with_name(f"{path.name}.folder-{time.time_ns()}")
        path.rename(aside)
        _log.warning("%s was a folder with something in it, which is %s now", path, aside.name)


@contextmanager
def locked(path: Path) -> Iterator[BinaryIO]:
    """The file there, open and locked, made if it isn't there. Another process may have finished
    and renamed the one that was waited for: then it is made anew."""
    while True:
        if _is_foreign(path):
            _clear_foreign(path)
        file = open(path, "r+b", buffering=0, opener=_open_own)  # noqa: SIM115
        with file:
            _lock(file)
            try:
                if is_at(path, file) and not _is_foreign(path):
                    yield file
                    return
            finally:
                # Closing isn't enough where a process that forked meanwhile has the file too.
                fcntl.flock(file, fcntl.LOCK_UN)


def is_at(path: Path, file: BinaryIO) -> bool:
    """Whether the name is still that of the open file: anybody may remove it at any time."""
    status = os.fstat(file.fileno())
    now = identity(path)
    return now is not None and now[:2] == (status.st_dev, status.st_ino)


def _is_foreign(path: Path) -> bool:
    """Whether what lies there isn't ours to write: no file, or one of another name too."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(status.st_mode) or status.st_nlink > 1


def _clear_foreign(path: Path) -> None:
    # Under a lock of the folder, lest a slower process removes what a faster one made instead.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if _is_foreign(path):
            _log.warning("%s is no file of the cache's own and is replaced", path)
            clear_place(path)
    finally:
        os.close(folder)


def _open_own(path: str, flags: int) -> int:
    # What took the file's place a moment ago isn't followed, and doesn't block.
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def _lock(file: BinaryIO) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _log.info("waiting for another process that fetches %s", file.name)
        fcntl.flock(file, fcntl.LOCK_EX)


def missing_chunks(file: BinaryIO, content: Committed) -> list[int]:
    """The chunks that a partial file lacks. What an earlier attempt wrote is checked, not
    believed; what nobody wrote is a hole and isn't even read."""
    os.ftruncate(file.fileno(), content.stored_nbytes)
    written = _written_chunks(file, content.stored_nbytes)
    damaged = set(damaged_chunks(file, content, written))
    present = set(written) - damaged
    return [number for number in range(len(content.chunk_sha256)) if number not in present]


def _written_chunks(file: BinaryIO, nbytes: int) -> list[int]:
    numbers = []
    position = 0
    while position < nbytes:
        try:
            position = os.lseek(file.fileno(), position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left
                break
            raise
        numbers.append(position // CHUNK_NBYTES)
        position = (numbers[-1] + 1) * CHUNK_NBYTES
    return numbers
