"""Resources from afar, kept on this machine: files named by their content, shared by all processes.

A resource that a core's own folder lacks is fetched once, into `partial/`, and renamed into
`resources/` when every chunk of it is right. Whoever uses an entry checks it as it would check any
file; one that turns out damaged, or no file at all, is replaced by what is fetched anew. The
partial file is locked while it is filled (`partial_files`), so that processes that want the same
content wait for one another, and what an interrupted one left is taken up where it stopped. Any
file here may be deleted at any time. `opened_core` is the caller; HTTP is `fetch`'s business.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeVar

from helios.core.chunks import Committed, SignedContentError, chunk_nbytes
from helios.core.format import RESOURCE_FOLDER
from helios.core.partial_files import (
    Identity,
    clear_place,
    identity,
    is_at,
    locked,
    missing_chunks,
)
from helios.core.shown_uris import shown_text, shown_uri
from helios.core.user_folders import user_folder
from helios.errors import CoreError

if TYPE_CHECKING:
    from helios.core.fetch import Fetcher

VARIABLE: Final = "HELIOS_CACHE"
_PARTIAL_FOLDER: Final = "partial"
# How often a file is filled anew that somebody removes while it is filled.
_FILLINGS: Final = 3

Content = TypeVar("Content")

_log: Final = logging.getLogger(__name__)


def default_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the cache is: `HELIOS_CACHE`, or the user's folder for caches."""
    if named := environment.get(VARIABLE):
        return Path(named)
    return user_folder("XDG_CACHE_HOME", ".cache", environment, VARIABLE)


class ResourceCache:
    """The cache in `folder`, which needn't exist; the user's own by default. A mirror may leave us
    without an answer for `mirror_timeout_s`, if not for the usual time. `fetcher` says how the
    cache is filled where all that won't do."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        allow_private_mirrors: bool = False,
        mirror_timeout_s: float | None = None,
        fetcher: Fetcher | None = None,
    ) -> None:
        self._folder = folder
        self._allow_private_mirrors = allow_private_mirrors
        self._mirror_timeout_s = mirror_timeout_s
        self._fetcher = fetcher

    def obtain(
        self, content: Committed, urls: Sequence[str], read: Callable[[Path], Content]
    ) -> Content:
        """What `read` makes of the content's file: of the entry, if `read` takes it, else of what
        is fetched from `urls`. `read` must check what it reads. Raises CoreError that says why
        there is none, SignedContentError as `read` does."""
        folder = self._folder or default_cache()
        entry = folder / RESOURCE_FOLDER / content.content_name
        _check_no_link(entry.parent)
        found = identity(entry)
        if found is not None and not found.plain:
            _log.warning("%s is no file and is fetched anew", entry)
        elif found is not None:
            try:
                return read(entry)
            except SignedContentError:
                raise
            except CoreError as error:
                _log.warning("%s is damaged (%s) and is fetched anew", entry, error.what)
        if not urls:
            raise CoreError("the cache doesn't have it either", where=str(entry))
        try:
            self._fill(content, urls, folder, entry, unusable=found)
        except OSError as error:
            raise CoreError(
                f"the cache can't be written ({error})",
                where=str(folder),
                remedy="Make room for it there, or name another folder with --cache-dir",
            ) from error
        return read(entry)

    def _fill(
        self,
        content: Committed,
        urls: Sequence[str],
        folder: Path,
        entry: Path,
        *,
        unusable: Identity | None,
    ) -> None:
        """Makes the entry, unless another process has made it meanwhile."""
        partial = folder / _PARTIAL_FOLDER / content.content_name
        for _ in range(_FILLINGS):
            folder.parent.mkdir(parents=True, exist_ok=True)
            for needed in (folder, partial.parent, entry.parent):
                needed.mkdir(exist_ok=True, mode=0o700)
            _check_no_link(partial.parent)
            with suppress(FileNotFoundError):  # a folder that was there a moment ago
                if self._fill_once(content, urls, partial, entry, unusable):
                    return
            _log.warning("%s was removed while it was filled", partial)
        raise CoreError(
            f"its file was removed {_FILLINGS} times while it was filled", where=str(partial)
        )

    def _fill_once(
        self,
        content: Committed,
        urls: Sequence[str],
        partial: Path,
        entry: Path,
        unusable: Identity | None,
    ) -> bool:
        """Whether the entry is made. It isn't where somebody removed the partial file."""
        with locked(partial) as file:
            # Entries change under this lock alone, so what is seen here stays.
            if identity(entry) not in (None, unusable):
                partial.unlink(missing_ok=True)
                return True
            clear_place(entry)
            if missing := missing_chunks(file, content):
                self._fetch(content, urls, file, missing)
            os.fsync(file.fileno())  # what has its name is there, even after a power cut
            if is_at(partial, file):
                partial.rename(entry)
                return True
            return False

    def _fetch(
        self, content: Committed, urls: Sequence[str], file: BinaryIO, missing: Sequence[int]
    ) -> None:
        if self._fetcher is None:
            self._fetcher = _new_fetcher(self._allow_private_mirrors, self._mirror_timeout_s)
        nbytes = sum(chunk_nbytes(content, number) for number in missing)
        places = ", ".join(map(shown_uri, urls))
        _log.info("fetching %s (%.1f MB) from %s", shown_text(content.id), nbytes / 1e6, places)
        began = time.monotonic()
        self._fetcher.fetch(content, urls, file.fileno(), missing)
        seconds = time.monotonic() - began
        rate = nbytes / 1e6 / seconds
        _log.info("fetched %s in %.1f s (%.1f MB/s)", shown_text(content.id), seconds, rate)


def _check_no_link(folder: Path) -> None:
    """Raises CoreError for a folder inside the cache that is a link out of it."""
    if folder.is_symlink():
        raise CoreError(
            f"the cache's folder {folder} is a link, and none is followed there",
            where=str(folder),
            remedy="Remove it, or name another folder with --cache-dir",
        )


def _new_fetcher(allow_private: bool, timeout_s: float | None) -> Fetcher:
    # Imported on use: cores that lie on this machine need no HTTP client.
    try:
        from helios.core.fetch import Fetcher
        from helios.core.mirror import Patience
    except ModuleNotFoundError as error:
        raise CoreError(
            f"fetching it needs {error.name}",
            where="location",
            remedy="`pip install 'helios-serve[remote]'` installs that",
        ) from error
    patience = Patience() if timeout_s is None else Patience.waiting(timeout_s)
    return Fetcher(allow_private=allow_private, patience=patience)
