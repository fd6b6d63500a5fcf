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
        # A name, not a descriptor: it is what errors say.
        file = open(path, "rb", buffering=0, opener=_open_without_blocking)  # noqa: SIM115
    except FileNotFoundError:
        raise CoreError("is missing", where=str(path)) from None
    except IsADirectoryError:
        raise CoreError("is no regular file", where=str(path)) from None
    except (OSError, ValueError) as error:
        raise CoreError(f"can't be read ({error})", where=str(path)) from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise CoreError("is no regular file", where=str(path))
    return file


def _open_without_blocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


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
