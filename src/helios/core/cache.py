"""Resources from afar, kept on this machine: files named by their content, shared by all processes.

A resource that a core's own folder lacks is fetched once, into `partial/`, and renamed into
`resources/` when every chunk of it is right. Whoever uses an entry checks it as it would check any
file; one that turns out damaged is thrown away and fetched anew. The partial file is locked while
it is filled, so that processes that want the same content wait for one another, and what an
interrupted one left is taken up where it stopped. Any file here may be deleted at any time.
`opened_core` is the caller; HTTP is `fetch`'s business.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeVar

from helios.core.chunks import Committed, SignedContentError, chunk_nbytes, damaged_chunks
from helios.core.format import CHUNK_NBYTES, RESOURCE_FOLDER
from helios.core.user_folders import user_folder
from helios.errors import CoreError

if TYPE_CHECKING:
    from helios.core.fetch import Fetcher

VARIABLE: Final = "HELIOS_CACHE"
_PARTIAL_FOLDER: Final = "partial"

Content = TypeVar("Content")

_log: Final = logging.getLogger(__name__)


def default_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the cache is: `HELIOS_CACHE`, or the user's folder for caches."""
    if named := environment.get(VARIABLE):
        return Path(named)
    return user_folder("XDG_CACHE_HOME", ".cache", environment, VARIABLE)


class ResourceCache:
    """The cache in `folder`, which needn't exist; the user's own by default. `fetcher` says how it
    is filled where the usual way won't do."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        allow_private_mirrors: bool = False,
        fetcher: Fetcher | None = None,
    ) -> None:
        self._folder = folder
        self._allow_private_mirrors = allow_private_mirrors
        self._fetcher = fetcher

    def obtain(
        self, content: Committed, urls: Sequence[str], read: Callable[[Path], Content]
    ) -> Content:
        """What `read` makes of the content's file: of the entry, if `read` takes it, else of what
        is fetched from `urls`. `read` must check what it reads. Raises CoreError that says why
        there is none, SignedContentError as `read` does."""
        folder = self._folder or default_cache()
        entry = folder / RESOURCE_FOLDER / content.content_name
        found = _identity(entry)
        if found is not None:
            try:
                return read(entry)
            except SignedContentError:
                raise
            except CoreError as error:
                _log.warning("%s is damaged (%s) and is fetched anew", entry, error.what)
        if not urls:
            raise CoreError("the cache doesn't have it either", where=str(entry))
        try:
            self._fill(content, urls, folder, entry, damaged=found)
        except OSError as error:
            raise CoreError(
                f"the cache can't be written ({error}); --cache-dir names another folder",
                where=str(folder),
            ) from error
        return read(entry)

    def _fill(
        self,
        content: Committed,
        urls: Sequence[str],
        folder: Path,
        entry: Path,
        *,
        damaged: tuple[int, ...] | None,
    ) -> None:
        """Makes the entry, unless another process has made it meanwhile."""
        partial = folder / _PARTIAL_FOLDER / content.content_name
        folder.parent.mkdir(parents=True, exist_ok=True)
        for needed in (folder, partial.parent, entry.parent):
            needed.mkdir(exist_ok=True, mode=0o700)
        with _locked(partial) as file:
            # Entries change under this lock alone, so what is seen here stays.
            if _identity(entry) not in (None, damaged):
                partial.unlink()
                return
            entry.unlink(missing_ok=True)
            missing = _missing_chunks(file, content)
            self._fetch(content, urls, file, missing)
            partial.rename(entry)

    def _fetch(
        self, content: Committed, urls: Sequence[str], file: BinaryIO, missing: Sequence[int]
    ) -> None:
        if self._fetcher is None:
            self._fetcher = _new_fetcher(self._allow_private_mirrors)
        nbytes = sum(chunk_nbytes(content, number) for number in missing)
        _log.info("fetching %s (%.1f MB) from %s", content.id, nbytes / 1e6, ", ".join(urls))
        began = time.monotonic()
        self._fetcher.fetch(content, urls, file.fileno(), missing)
        seconds = time.monotonic() - began
        _log.info("fetched %s in %.1f s (%.1f MB/s)", content.id, seconds, nbytes / 1e6 / seconds)


def _new_fetcher(allow_private: bool) -> Fetcher:
    # Imported on use: cores that lie on this machine need no HTTP client.
    try:
        from helios.core.fetch import Fetcher
    except ModuleNotFoundError as error:
        raise CoreError(
            f"fetching it needs {error.name}, which `pip install 'helios-serve[remote]'` installs",
            where="location",
        ) from error
    return Fetcher(allow_private=allow_private)


def _identity(path: Path) -> tuple[int, ...] | None:
    """Tells a file from one that replaces it; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


@contextmanager
def _locked(partial: Path) -> Iterator[BinaryIO]:
    """The partial file, open and locked, made if it isn't there. Another process may have finished
    and renamed the one that was waited for: then it is made anew."""
    while True:
        file = open(partial, "r+b", buffering=0, opener=_open_partial)  # noqa: SIM115
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            own = os.fstat(file.fileno())
            now = _identity(partial)
            if now is not None and now[:2] == (own.st_dev, own.st_ino):
                yield file
                return


def _open_partial(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _missing_chunks(file: BinaryIO, content: Committed) -> list[int]:
    """The chunks that a partial file lacks. What an earlier attempt wrote is checked, not
    believed; what nobody wrote is a hole and isn't even read."""
    os.ftruncate(file.fileno(), content.stored_nbytes)
    written = _written_chunks(file, content.stored_nbytes)
    damaged = set(damaged_chunks(file, content, written))
    present = set(written) - damaged
    return [number for number in range(len(content.chunk_sha256)) if number not in present]


def _written_chunks(file: BinaryIO, nbytes: int) -> list[int]:
    numbers = []
    position = 0
    while position < nbytes:
        try:
            position = os.lseek(file.fileno(), position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left
                break
            raise
        numbers.append(position // CHUNK_NBYTES)
        position = (numbers[-1] + 1) * CHUNK_NBYTES
    return numbers
