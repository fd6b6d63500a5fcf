"""Opening files of a core: regular files only, never blocking, errors that name the path."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from helios.errors import CoreError


def open_regular(path: Path) -> BinaryIO:
    """Opens a regular file for reading, unbuffered. Raises CoreError naming it if it is missing,
    unreadable or something else (a pipe would block)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise CoreError("is missing", where=str(path)) from None
    except (OSError, ValueError) as error:
        raise CoreError(f"can't be read ({error})", where=str(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CoreError("is no regular file", where=str(path))
    return os.fdopen(descriptor, "rb", buffering=0)


def read_exactly(file: BinaryIO, nbytes: int) -> bytes:
    """The first `nbytes` bytes. Raises CoreError naming the file if it ends before."""
    file.seek(0)
    content = bytearray(nbytes)
    view, filled = memoryview(content), 0
    while filled < nbytes:
        count = file.readinto(view[filled:])  # type: ignore[attr-defined]
        if not count:
            raise CoreError(f"is truncated: ends at {filled} of {nbytes} bytes", where=file.name)
        filled += count
    return bytes(content)
