"""Writes a core's location set anew: the core's own files, then mirrors that serve them too.

The set isn't signed, so this needs no key and may be done by whoever hands a core on. The names
below a mirror's URL are those of the files in `resources/`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from helios.core import format as core_format
from helios.core import read_folder
from helios.core.body import decode_body
from helios.core.shown_uris import shown_uri
from helios.errors import CoreError
from helios.schema import core_pb2


def locate(folder: Path, mirrors: Sequence[str]) -> int:
    """Replaces the location set of the core in `folder`; returns how many resources it has.
    Raises CoreError for what is no core, or a mirror that is no URL of a folder."""
    if len(mirrors) >= core_format.LOCATION_URIS_LIMIT:
        raise CoreError(
            f"more than {core_format.LOCATION_URIS_LIMIT - 1} mirrors", where="--mirror"
        )
    for mirror in mirrors:
        _check(mirror)
    decoded = decode_body(read_folder(folder, None).body)
    locations = core_pb2.LocationSet()
    for resource in (*decoded.executables.values(), *decoded.weights.values()):
        name = resource.content_name
        uris = [core_format.resource_uri(name), *(f"{m.rstrip('/')}/{name}" for m in mirrors)]
        locations.locations.add(resource=resource.id, uris=uris)
    _replace(folder / core_format.LOCATIONS_FILE, locations.SerializeToString(deterministic=True))
    return len(locations.locations)


def _check(mirror: str) -> None:
    try:
        parts = urlsplit(mirror)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        good = False
    if not good or parts.query or parts.fragment or parts.username is not None:
        raise CoreError(
            f"'{shown_uri(mirror)}' is no URL of a folder",
            where="--mirror",
            remedy="Write it like https://host/path, without user, query or fragment",
        )


def _replace(path: Path, content: bytes) -> None:
    """Readers see the old file or the new one."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
