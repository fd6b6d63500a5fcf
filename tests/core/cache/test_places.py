"""What lies in the cache where a file should: replaced, never followed, never waited for."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from helios.errors import CoreError
from tests.core.cache.cached_core import entry, partial, weights
from tests.core.mirror_server import MirrorServer
from tests.core.sample_core import WEIGHTS
from tests.core.test_mirrors import RANGES

PRECIOUS = b"precious" * 1000


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """Things outside of the cache, that nothing may happen to."""
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "folder" / "file").write_bytes(PRECIOUS)
    (outside / "file").write_bytes(PRECIOUS)
    os.mkfifo(outside / "pipe")
    yield outside
    assert (outside / "file").read_bytes() == PRECIOUS
    assert (outside / "folder" / "file").read_bytes() == PRECIOUS
    assert sorted(p.name for p in outside.rglob("*")) == ["file", "file", "folder", "pipe"]
    assert (outside / "file").stat().st_nlink == 1


KINDS = ["folder", "full-folder", "pipe", "socket", "device"]
LINKS = ["file", "folder", "pipe", "nowhere", "itself"]


def put(path: Path, kind: str, victim: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "folder":
            path.mkdir()
        case "full-folder":
            shutil.copytree(victim / "folder", path)
        case "pipe":
            os.mkfifo(path)
        case "socket":
            # By its folder's descriptor: a socket's path may be no longer than 107 bytes.
            parent = os.open(path.parent, os.O_RDONLY)
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(f"/proc/self/fd/{parent}/{path.name}")
            os.close(parent)
        case "device":
            try:
                os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
            except PermissionError:
                pytest.skip("only root makes devices")
        case _:
            target = kind.removeprefix("link-")
            path.symlink_to(path.name if target == "itself" else victim / target)


@pytest.mark.parametrize("place", ["entry", "partial"])
@pytest.mark.parametrize("kind", [*KINDS, *(f"link-{target}" for target in LINKS)])
def test_what_is_no_file_is_replaced(
    folder: Path, cache: Path, server: MirrorServer, victim: Path, place: str, kind: str
) -> None:
    path = entry(cache) if place == "entry" else partial(cache)
    put(path, kind, victim)
    assert weights(folder, cache) == WEIGHTS
    assert server.ranges() == RANGES
    assert stat.S_ISREG(entry(cache).lstat().st_mode)
    assert weights(folder, cache) == WEIGHTS  # from the cache
    assert len(server.requests) == len(RANGES)
    left = sorted(path.parent.glob(f"{path.name}.*"))
    if kind == "full-folder":  # somebody's: it is kept
        assert [(kept / "file").read_bytes() for kept in left] == [PRECIOUS]
    else:
        assert left == []


def test_an_entry_that_is_a_link_to_the_right_file_is_not_followed(
    folder: Path, cache: Path, server: MirrorServer, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(WEIGHTS)
    entry(cache).parent.mkdir(parents=True)
    entry(cache).symlink_to(elsewhere)
    assert weights(folder, cache) == WEIGHTS
    assert server.ranges() == RANGES
    assert not entry(cache).is_symlink()
    assert elsewhere.read_bytes() == WEIGHTS


def test_a_partial_file_of_another_name_too_is_not_written(
    folder: Path, cache: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.write_bytes(PRECIOUS)
    partial(cache).parent.mkdir(parents=True)
    os.link(other, partial(cache))
    assert weights(folder, cache) == WEIGHTS
    assert other.read_bytes() == PRECIOUS
    assert entry(cache).stat().st_nlink == 1


@pytest.mark.parametrize("kind", ["pipe", "full-folder", "link-file", "link-pipe"])
def test_what_is_no_file_is_no_entry_where_nothing_can_be_fetched(
    folder: Path, cache: Path, victim: Path, kind: str
) -> None:
    put(entry(cache), kind, victim)
    (folder / "locations.pb").unlink()
    with pytest.raises(CoreError, match="the cache doesn't have it either"):
        weights(folder, cache)
    assert os.path.lexists(entry(cache))


@pytest.mark.parametrize("place", ["resources", "partial"])
def test_a_folder_of_the_cache_that_is_a_link_is_named_and_not_followed(
    folder: Path, cache: Path, server: MirrorServer, victim: Path, place: str
) -> None:
    cache.mkdir()
    (cache / place).symlink_to(victim)
    with pytest.raises(CoreError, match=rf"cache's folder .*/{place} is a link.*--cache-dir"):
        weights(folder, cache)
    assert server.requests == []


def test_a_cache_that_is_a_link_itself_is_followed(
    folder: Path, cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "big-disk").mkdir()
    cache.symlink_to(tmp_path / "big-disk")
    assert weights(folder, cache) == WEIGHTS
    assert entry(tmp_path / "big-disk").read_bytes() == WEIGHTS


@pytest.mark.parametrize("place", ["resources", "partial"])
def test_a_folder_of_the_cache_that_is_a_file_is_named(
    folder: Path, cache: Path, place: str
) -> None:
    cache.mkdir()
    (cache / place).write_bytes(PRECIOUS)
    with pytest.raises(CoreError, match=rf"cache can't be written .*/{place}'"):
        weights(folder, cache)
    assert (cache / place).read_bytes() == PRECIOUS
