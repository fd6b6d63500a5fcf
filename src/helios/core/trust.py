"""The trust store: which publishers' keys the operator of this machine trusts, for which namespace.

One small JSON file, `trust.json` in the user's configuration folder or where `HELIOS_TRUST` says.
It is replaced as a whole, never edited in place. `open_core` asks it who signed a core; `helios
trust` changes it. What a store that can't be read means is refusal, never "trust nobody known".
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import hexdigits
from typing import Final

from helios.core.files import open_regular, read_exactly
from helios.core.format import PUBLIC_KEY_NBYTES
from helios.core.user_folders import user_folder
from helios.errors import CoreError

VARIABLE: Final = "HELIOS_TRUST"
_VERSION: Final = 1
_LIMIT_NBYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, order=True)
class TrustedPublisher:
    """A key (32 bytes, Ed25519) that is trusted to sign for a namespace, and for that alone."""

    namespace: str
    key: bytes


Publishers = frozenset[TrustedPublisher]


def default_store(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the store is: `HELIOS_TRUST`, or `helios/trust.json` among the user's settings."""
    if named := environment.get(VARIABLE):
        return Path(named)
    return user_folder("XDG_CONFIG_HOME", ".config", environment, VARIABLE) / "trust.json"


class TrustStore:
    """The store at `path`, which is read anew each time. It needn't exist."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_store()

    def publishers(self) -> Publishers:
        """Everybody who is trusted. Raises CoreError naming the file if it exists and can't be
        read, is damaged, or others than its owner may write it."""
        where = str(self.path)
        try:
            self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return frozenset()
        except OSError as error:
            raise CoreError(
                f"can't be read: {error.strerror}", where=where, remedy=_REPAIR
            ) from error
        with open_regular(self.path) as file:
            status = os.fstat(file.fileno())
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or status.st_uid not in (
                0,
                os.geteuid(),
            ):
                raise CoreError(
                    "can be written by other users, so it says nothing about whom you trust",
                    where=where,
                    remedy=f"Look it through, then make it yours: chmod 600 {where}",
                )
            if status.st_size > _LIMIT_NBYTES:
                raise CoreError(f"is over {_LIMIT_NBYTES} bytes", where=where, remedy=_REPAIR)
            content = read_exactly(file, status.st_size)
        try:
            return _decode(json.loads(content))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CoreError(
                f"is no trust store of version {_VERSION}", where=where, remedy=_REPAIR
            ) from error

    def add(self, publisher: TrustedPublisher) -> bool:
        """Trusts a publisher; False if it was trusted already. Raises CoreError."""
        return self._change(lambda known: known | {publisher})

    def remove(self, publisher: TrustedPublisher) -> bool:
        """Trusts a publisher no longer; False if it wasn't trusted. Raises CoreError."""
        return self._change(lambda known: known - {publisher})

    def _change(self, change: Callable[[Publishers], Publishers]) -> bool:
        try:
            with self._locked():
                known = self.publishers()
                changed = change(known)
                if changed != known:
                    self._replace(changed)
                return changed != known
        except OSError as error:
            raise CoreError(
                f"can't be changed: {error.strerror}",
                where=str(self.path),
                remedy=f"Name another place with {VARIABLE}",
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keeps other processes from changing the store at the same time."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = self.path.with_name(f"{self.path.name}.lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _replace(self, publishers: Publishers) -> None:
        """Writes a new file and renames it: readers see the old store or the new one."""
        target = self.path.resolve()  # a symbolic link stays one
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with open(descriptor, "wb") as file:  # made with mode 0600
                file.write(_encode(publishers))
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise


def parse_key(text: str) -> bytes | None:
    """The key that 64 hexadecimal digits write; None for any other text."""
    if len(text) != 2 * PUBLIC_KEY_NBYTES or not set(text) <= set(hexdigits):
        return None
    return bytes.fromhex(text)


def _encode(publishers: Publishers) -> bytes:
    listed = [{"namespace": p.namespace, "key": p.key.hex()} for p in sorted(publishers)]
    return json.dumps({"version": _VERSION, "publishers": listed}, indent=2).encode() + b"\n"


def _decode(message: object) -> Publishers:
    """Raises ValueError, KeyError or TypeError for anything that `_encode` doesn't write."""
    if not isinstance(message, dict) or message.keys() != {"version", "publishers"}:
        raise ValueError("other fields")
    if message["version"] != _VERSION:
        raise ValueError("another version")
    publishers = set()
    for entry in message["publishers"]:
        if not isinstance(entry, dict) or entry.keys() != {"namespace", "key"}:
            raise ValueError("other fields")
        key = parse_key(entry["key"])
        if key is None or not isinstance(entry["namespace"], str) or not entry["namespace"]:
            raise ValueError("no publisher")
        publishers.add(TrustedPublisher(entry["namespace"], key))
    return frozenset(publishers)


_REPAIR: Final = "Restore it, or delete it and trust your publishers anew"
