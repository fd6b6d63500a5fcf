"""Where a resource's bytes may lie: the unsigned location set, and names that follow from what is
signed.

Nothing here says what bytes are: each place is one to try, and whoever reads it checks the content
against its commitments. A lost or damaged location set leaves the core's own resource folder, whose
file names the signed digests give. `opened_core` is the caller; `mirror` decides what an URL may
lead to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from google.protobuf.message import DecodeError

from helios.core.files import open_regular, read_exactly
from helios.core.format import LOCATIONS_FILE, LOCATIONS_LIMIT_NBYTES, resource_uri
from helios.errors import CoreError
from helios.schema import core_pb2

# More than these of a resource are left out: trying them all could take for ever.
LOCATIONS_LIMIT: Final = 32
_MIRRORS: Final = frozenset({"http", "https"})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A location on this machine to try: `path`, or None and the reason why it can't be."""

    uri: str
    path: Path | None
    reason: str = ""


class Locations:
    """A core's folder and the URIs that its location set gives for each resource."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._uris: dict[str, list[str]] = {}
        for location in _read(folder / LOCATIONS_FILE).locations:
            known = self._uris.setdefault(location.resource, [])
            known.extend(location.uris[: LOCATIONS_LIMIT - len(known)])

    def candidates(self, resource: str, content_name: str) -> Iterator[Candidate]:
        """Locations of a resource on this machine in the order to try them, the resource folder
        last, and those that are no location at all."""
        own = resource_uri(content_name)
        listed = self._uris.get(resource, [])
        for uri in [*listed, *([] if own in listed else [own])]:
            if _scheme(uri) not in _MIRRORS:
                yield self._candidate(uri)

    def mirrors(self, resource: str) -> list[str]:
        """URLs of a resource in the order to try them, once each."""
        listed = self._uris.get(resource, [])
        return list(dict.fromkeys(uri for uri in listed if _scheme(uri) in _MIRRORS))

    def _candidate(self, uri: str) -> Candidate:
        if _scheme(uri) != "file":
            return Candidate(uri, None, "only file:, https: and http: locations are supported")
        path = PurePosixPath(uri.partition(":")[2])
        if not path.parts or "\0" in uri or path.is_absolute() or ".." in path.parts:
            return Candidate(uri, None, "is no path below the core's folder")
        try:
            found = (self._folder / path).resolve(strict=True)
        except (OSError, RuntimeError):
            return Candidate(uri, None, "no such file")
        if not found.is_relative_to(self._folder):
            return Candidate(uri, None, "leads out of the core's folder")
        return Candidate(uri, found)


def _scheme(uri: str) -> str:
    """The URI's scheme in lower case; nothing where it has none."""
    scheme, colon, _ = uri.partition(":")
    return scheme.lower() if colon else ""


def _read(path: Path) -> core_pb2.LocationSet:
    """The location set; empty where it is missing or damaged, since it is only a hint."""
    try:
        with open_regular(path) as file:
            nbytes = file.seek(0, 2)
            if nbytes > LOCATIONS_LIMIT_NBYTES:
                return core_pb2.LocationSet()
            content = read_exactly(file, nbytes)
        return core_pb2.LocationSet.FromString(content)
    except (CoreError, DecodeError):
        return core_pb2.LocationSet()
