"""Where a resource's bytes may lie: the unsigned location set, and names that follow from what is
signed.

Nothing here says what bytes are: each place is one to try, and whoever reads it checks the content
against its commitments. A lost or damaged location set leaves the core's own resource folder, whose
file names the signed digests give. `opened_core` is the caller; `mirror` decides what an URL may
lead to.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from google.protobuf.message import DecodeError

from helios.core.files import open_regular, read_exactly
from helios.core.format import (
    LOCATION_URIS_LIMIT,
    LOCATIONS_FILE,
    LOCATIONS_LIMIT_NBYTES,
    resource_uri,
)
from helios.core.shown_uris import shown_uri
from helios.dataclass import dataclass
from helios.errors import CoreError
from helios.schema import core_pb2

_MIRRORS: Final = frozenset({"http", "https"})
_SHOWN: Final = 80  # characters of a URI in messages


@dataclass(frozen=True, slots=True)
class Candidate:
    """A location on this machine to try: `path`, or None and the reason why it can't be."""

    uri: str
    path: Path | None
    reason: str = ""

    @property
    def shown(self) -> str:
        """The URI as messages show it."""
        return shown_uri(self.uri, _SHOWN)


class Locations:
    """A core's folder and the URIs that its location set gives for each resource."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        # Of each resource the first few different ones, in order: a dictionary's keys.
        self._uris: dict[str, dict[str, None]] = {}
        for location in _read(folder / LOCATIONS_FILE).locations:
            uris = self._uris.setdefault(location.resource, {})
            for uri in location.uris:
                if len(uris) == LOCATION_URIS_LIMIT:
                    break
                uris[uri] = None

    def candidates(self, resource: str, content_name: str) -> Iterator[Candidate]:
        """Locations of a resource on this machine in the order to try them, the resource folder
        last, and those that are no location at all. No path is given twice: what was wrong there
        once stays wrong."""
        given: set[Path] = set()
        for uri in {**self._uris.get(resource, {}), resource_uri(content_name): None}:
            if _scheme(uri) in _MIRRORS:
                continue
            candidate = self._candidate(uri)
            if candidate.path is not None:
                if candidate.path in given:
                    continue
                given.add(candidate.path)
            yield candidate

    def mirrors(self, resource: str) -> list[str]:
        """URLs of a resource in the order to try them, once each."""
        return [uri for uri in self._uris.get(resource, {}) if _scheme(uri) in _MIRRORS]

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
