"""A content's file: a header that says what it is, then the bytes.

Written to a temporary name and renamed, so a name has a whole file or none. It isn't flushed to
the disk: what a crash leaves half written doesn't pass its checksum. Nothing read from a file is
used before everything in it has been checked, against the header and against what was asked for.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

from helios.scheduler.cache.offload.contents import Content
from helios.scheduler.cache.offload.keys import KEY_NBYTES, Entry

TEMPORARY_SUFFIX: Final = ".tmp"
_MAGIC: Final = b"helios\x00kv"
_FORMAT: Final = 1
# magic, format, length, content's bytes, key, node's key (zeros for a page), checksum
_HEADER: Final = struct.Struct("<9s3xIQQ32s32s32s")
HEADER_NBYTES: Final = _HEADER.size
_NAME: Final = re.compile(r"([0-9a-f]{64})(?:\.([0-9a-f]{64})\.([0-9]{1,9}))?\.helioskv")


class DamagedFileError(Exception):
    """A file that isn't what its name says."""


def file_name(entry: Entry) -> str:
    """The name of an entry's file."""
    snapshot = f".{entry.node.hex()}.{entry.length}" if entry.node else ""
    return f"{entry.key.hex()}{snapshot}.helioskv"


def named_entry(name: str, file_nbytes: int) -> Entry | None:
    """The entry that a file name stands for; None for other files."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    key, node, length = found.groups()
    nbytes = max(file_nbytes - HEADER_NBYTES, 0)
    if node is None:
        return Entry(bytes.fromhex(key), nbytes)
    return Entry(bytes.fromhex(key), nbytes, bytes.fromhex(node), int(length))


def write_file(folder: Path, entry: Entry, content: Content) -> None:
    """Writes an entry's file. Raises OSError; nothing is left behind then."""
    view = memoryview(content).cast("B")
    checksum = _checksum(entry, view)
    header = _pack(entry, checksum)
    temporary = folder / f"{secrets.token_hex(8)}{TEMPORARY_SUFFIX}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(header)
            file.write(view)
        temporary.replace(folder / file_name(entry))
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def read_file(folder: Path, entry: Entry) -> bytearray:
    """An entry's content, checked. Raises OSError, and DamagedFileError for a file that is
    another's, of another version, cut short or changed."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(folder / file_name(entry), flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size != HEADER_NBYTES + entry.nbytes:
            raise DamagedFileError(f"{status.st_size} bytes, not {HEADER_NBYTES + entry.nbytes}")
        header = _read_exactly(descriptor, bytearray(HEADER_NBYTES))
        content = _read_exactly(descriptor, bytearray(entry.nbytes))
    finally:
        os.close(descriptor)
    if header != _pack(entry, _checksum(entry, memoryview(content))):
        raise DamagedFileError("its header or content was changed")
    return content


def _read_exactly(descriptor: int, into: bytearray) -> bytearray:
    view = memoryview(into)
    while view:
        count = os.readv(descriptor, [view])
        if not count:
            raise DamagedFileError("it ends early")
        view = view[count:]
    return into


def _pack(entry: Entry, checksum: bytes) -> bytes:
    node = entry.node or bytes(KEY_NBYTES)
    return _HEADER.pack(_MAGIC, _FORMAT, entry.length, entry.nbytes, entry.key, node, checksum)


def _checksum(entry: Entry, content: memoryview) -> bytes:
    hashed = hashlib.sha256(_pack(entry, bytes(KEY_NBYTES)))
    hashed.update(content)
    return hashed.digest()
