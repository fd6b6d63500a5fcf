"""Which mirror to ask next, by what became of those that were asked.

A failure that isn't about one file is remembered for as long as the core is open, for the URL's
host and for its folder: mirrors that failed come after those that didn't. What concerns the one
resource ends with it. Nothing is asked here. `fetch` is the caller.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from helios.core.shown_uris import shown_uri


class MirrorRecord:
    """The mirrors that failed, whatever for. Threads share it, and so do all resources."""

    def __init__(self) -> None:
        self._failed: set[str] = set()
        self._changing = threading.Lock()

    def note(self, url: str) -> None:
        """Puts a URL's host and folder behind others."""
        with self._changing:
            self._failed.update(_places(url))

    def rank(self, url: str) -> int:
        """0 for a mirror that didn't fail; a folder that did comes after others of its host."""
        with self._changing:
            return sum(place in self._failed for place in _places(url))


class Choice(NamedTuple):
    """A URL to ask. `brisk` if another one, of a mirror that didn't fail, could be asked as well,
    so that a slow one needn't be put up with."""

    url: str
    brisk: bool


class ResourceMirrors:
    """The URLs of one resource, and why some are no longer asked. Threads share it."""

    def __init__(self, urls: Sequence[str], record: MirrorRecord) -> None:
        self._reasons: dict[str, str | None] = dict.fromkeys(urls)
        self._record = record
        self._changing = threading.Lock()

    def choose(self) -> Choice | None:
        """The one to ask: the first in order of those that failed least. None if all were
        dropped."""
        live = sorted(filter(self.is_live, self._reasons), key=self._record.rank)
        if not live:
            return None
        others = live[1:]
        return Choice(live[0], bool(others) and self._record.rank(others[0]) == 0)

    def is_live(self, url: str) -> bool:
        """Whether no thread has dropped it."""
        return self._reasons[url] is None

    def drop(self, url: str, reason: str, *, of_file: bool) -> None:
        """Asks a mirror no more; the first reason stays. `of_file` if others of its files may be
        right."""
        if not of_file:
            self._record.note(url)
        with self._changing:
            if self._reasons[url] is None:
                self._reasons[url] = reason

    def put_last(self, url: str) -> None:
        """Asks a mirror again only where no better one is left."""
        self._record.note(url)

    def reasons(self) -> list[str]:
        """Why each mirror was dropped, in their order."""
        return [f"{shown_uri(url)}: {reason}" for url, reason in self._reasons.items() if reason]


def _places(url: str) -> tuple[str, str]:
    """A URL's host, with scheme and port, and its folder."""
    address = url.split("?", 1)[0].split("#", 1)[0]
    scheme, _, rest = address.partition("//")
    host = rest.partition("/")[0]
    return f"{scheme}//{host}".lower(), address.rpartition("/")[0] + "/"
