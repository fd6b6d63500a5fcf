"""Opens a core with a cache, and says where in the cache its files lie."""

from __future__ import annotations

from pathlib import Path

from helios.core import OpenedCore, open_core
from helios.core.cache import ResourceCache
from helios.core.fetch import Fetcher
from helios.core.mirror import Patience
from tests.core.sample_core import NAMESPACE, WEIGHTS
from tests.core.test_mirrors import NAMES

CHUNK = 4 << 20


def opened(folder: Path, cache: Path) -> OpenedCore:
    fetcher = Fetcher(allow_private=True, patience=Patience(attempts=2, pause_s=0.0))
    return open_core(folder, accept=NAMESPACE, cache=ResourceCache(cache, fetcher=fetcher))


def weights(folder: Path, cache: Path) -> bytes:
    mapped = opened(folder, cache).map_weights("weights")
    content = bytes(mapped.content)
    mapped.close()
    return content


def entry(cache: Path, resource: str = "weights") -> Path:
    return cache / "resources" / NAMES[resource]


def partial(cache: Path, resource: str = "weights") -> Path:
    return cache / "partial" / NAMES[resource]


def holds_first_chunk(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(CHUNK) == WEIGHTS[:CHUNK]
    except FileNotFoundError:
        return False
