"""Who may ask: API keys and browsers' origins.

Only digests of keys are kept: what is read here appears in no log, error or list of processes, and
is in the environment of no process started later.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from helios.dataclass import dataclass
from helios.errors import HeliosError
from helios.worker.launch import API_KEY_VARIABLE

KEY_VARIABLE: Final = API_KEY_VARIABLE
KEY_OPTION: Final = "--api-key"
_FILE_LIMIT_NBYTES: Final = 1 << 20
# What every client can put behind `Bearer`.
_KEY: Final = re.compile(r"[\x21-\x7e]{1,1024}")
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@\\]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """Who may ask. With `key_digests` (SHA-256) a request needs one of the keys, except for the
    probes; with `open_metrics` `/metrics` needs none either. `origins` are those whose pages may
    read answers, `*` being any. Raises HeliosError for an origin that no browser sends."""

    key_digests: tuple[bytes, ...] = field(default=(), repr=False)
    open_metrics: bool = False
    origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for origin in self.origins:
            if origin not in ("*", "null") and not _ORIGIN.fullmatch(origin):
                raise HeliosError(
                    f"{origin!r} is no origin",
                    where="--cors-origin",
                    remedy="Write it as browsers do, like https://example.org:8443 without a path,"
                    " or * for any",
                )


def key_digest(key: bytes) -> bytes:
    """What is kept of a key."""
    return hashlib.sha256(key).digest()


def read_keys(
    given: Sequence[str], files: Sequence[Path], environment: MutableMapping[str, str]
) -> tuple[bytes, ...]:
    """Digests of the keys given as options, in files (one a line, `#` begins a comment line) and
    in HELIOS_API_KEY, which is taken out of `environment`, so that processes started from now on
    don't have it. Raises HeliosError for a key that clients couldn't send and for a file without
    keys, by place, never by content."""
    keys = [_checked(key, KEY_OPTION) for key in given]
    for path in files:
        keys += _keys_of_file(path)
    if KEY_VARIABLE in environment:
        keys.append(_checked(environment.pop(KEY_VARIABLE), KEY_VARIABLE))
    return tuple(dict.fromkeys(key_digest(key.encode()) for key in keys))


def key_to_send(environment: Mapping[str, str]) -> str | None:
    """A client's key in HELIOS_API_KEY, if there is one. Raises HeliosError for one that can't be
    sent."""
    key = environment.get(KEY_VARIABLE)
    return _checked(key, KEY_VARIABLE) if key else None


def _keys_of_file(path: Path) -> list[str]:
    where = f"{path} (--api-key-file)"
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_LIMIT_NBYTES + 1)
    except OSError as error:
        raise HeliosError(
            f"can't be read: {error.strerror}",
            where=where,
            remedy="Name a file with one key a line that this user may read",
        ) from error
    if len(content) > _FILE_LIMIT_NBYTES:
        raise HeliosError(
            "is larger than a file of keys", where=where, remedy="Name one with a key a line"
        )
    lines = [line.strip() for line in content.decode("utf-8-sig", "replace").split("\n")]
    keys = [
        _checked(line, f"{where}, line {number}")
        for number, line in enumerate(lines, 1)
        if line and not line.startswith("#")
    ]
    if not keys:
        raise HeliosError("has no key", where=where, remedy="Write one a line, or leave it out")
    return keys


def _checked(key: str, where: str) -> str:
    if _KEY.fullmatch(key):
        return key
    raise HeliosError(
        "an API key is empty" if not key else "an API key can't be sent by every client",
        where=where,
        remedy="Use 1 to 1024 letters, digits and signs of ASCII, without spaces",
    )
