"""The cache that processes share: filled once, checked on use, taken up where it stopped."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from helios.core import ResourceKind, open_core
from helios.core.cache import ResourceCache, default_cache
from helios.core.fetch import Fetcher
from helios.core.mirror import Patience
from helios.errors import CoreError
from tests.core.cache.cached_core import CHUNK, entry, holds_first_chunk, opened, partial, weights
from tests.core.mirror_server import MirrorServer
from tests.core.sample_core import CONTENT, NAMESPACE, WEIGHTS, write_core
from tests.core.test_mirrors import NAMES, RANGES, TEMPLATE, locate, url


def test_an_entry_is_the_content_and_nothing_else_is_left(folder: Path, cache: Path) -> None:
    assert weights(folder, cache) == WEIGHTS
    assert [p.relative_to(cache) for p in cache.rglob("*") if p.is_file()] == [
        entry(cache).relative_to(cache)
    ]
    assert entry(cache).read_bytes() == WEIGHTS
    assert entry(cache).stat().st_mode & 0o077 == 0
    assert cache.stat().st_mode & 0o077 == 0


def test_an_entry_serves_without_its_mirrors(
    folder: Path, cache: Path, server: MirrorServer
) -> None:
    weights(folder, cache)
    (folder / "locations.pb").unlink()
    assert weights(folder, cache) == WEIGHTS
    assert len(server.requests) == len(RANGES)


@pytest.mark.clause("CORE-3")
@pytest.mark.parametrize("damage", ["flip", "truncate", "extend", "empty", "other"])
def test_a_damaged_entry_is_thrown_away_and_fetched_anew(
    folder: Path, cache: Path, server: MirrorServer, damage: str
) -> None:
    weights(folder, cache)
    path = entry(cache)
    match damage:
        case "flip":
            path.write_bytes(WEIGHTS[:-1] + b"!")
        case "truncate":
            os.truncate(path, len(WEIGHTS) - 1)
        case "extend":
            os.truncate(path, len(WEIGHTS) + 1)
        case "empty":
            os.truncate(path, 0)
        case "other":
            path.write_bytes(bytes(len(WEIGHTS)))
    assert weights(folder, cache) == WEIGHTS
    assert path.read_bytes() == WEIGHTS
    assert len(server.requests) == 2 * len(RANGES)


def test_a_damaged_entry_without_mirrors_is_not_used(folder: Path, cache: Path) -> None:
    weights(folder, cache)
    entry(cache).write_bytes(bytes(len(WEIGHTS)))
    (folder / "locations.pb").unlink()
    with pytest.raises(CoreError, match=r"'weights'.*the cache doesn't have it either"):
        weights(folder, cache)


def test_a_frame_that_was_signed_broken_is_not_fetched_again(
    tmp_path: Path, cache: Path, server: MirrorServer
) -> None:
    """Its bytes are right, so the entry stays."""
    import hashlib

    broken = b"no frame at all"
    folder = write_core(tmp_path / "broken", stored={"template": broken})
    shutil.rmtree(folder / "resources")
    server.files["broken"] = broken
    locate(folder, "template", f"{server.url}/good/broken")
    for _ in range(2):
        with pytest.raises(CoreError, match="'template': is no zstd frame"):
            opened(folder, cache).read_resource("template", ResourceKind.CHAT_TEMPLATE)
    assert len(server.requests) == 1
    assert (cache / "resources" / hashlib.sha256(broken).hexdigest()).read_bytes() == broken


def test_an_interrupted_fetch_is_taken_up_where_it_stopped(
    folder: Path, cache: Path, server: MirrorServer
) -> None:
    locate(folder, "weights", url(server, "first-only", "weights"))
    failures: list[CoreError] = []

    def fail() -> None:
        with pytest.raises(CoreError, match="status 404") as failed:
            weights(folder, cache)
        failures.append(failed.value)

    fetching = threading.Thread(target=fail)
    fetching.start()
    while fetching.is_alive() and not holds_first_chunk(partial(cache)):
        pass
    server.gate.set()
    fetching.join()
    assert len(failures) == 1
    assert holds_first_chunk(partial(cache))
    assert not entry(cache).exists()
    server.requests.clear()
    locate(folder, "weights", url(server, "good", "weights"))
    assert weights(folder, cache) == WEIGHTS
    assert server.ranges() == RANGES[1:]


@pytest.mark.clause("CORE-3")
def test_what_an_earlier_fetch_left_is_checked_and_not_believed(
    folder: Path, cache: Path, server: MirrorServer
) -> None:
    path = partial(cache)
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.write(WEIGHTS[:CHUNK])
        file.write(b"wrong" * 100)
        file.seek(2 * CHUNK)
        file.write(WEIGHTS[2 * CHUNK :] + b"and too long")
    assert weights(folder, cache) == WEIGHTS
    assert server.ranges() == [RANGES[1]]


def test_a_cache_that_cant_be_made_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CoreError, match=r"cache can't be written.*file.*--cache-dir"):
        weights(folder, tmp_path / "file" / "cache")


def _obtain(folder: Path, cache: Path, done: multiprocessing.Queue[bool]) -> None:
    done.put(weights(folder, cache) == WEIGHTS)


def test_processes_that_want_the_same_fetch_it_once(
    folder: Path, cache: Path, server: MirrorServer
) -> None:
    # Other processes in earnest: locks and mappings are what is shared.
    context = multiprocessing.get_context("spawn")
    done: multiprocessing.Queue[bool] = context.Queue()
    processes = [
        context.Process(target=_obtain, args=(folder, cache, done), daemon=True) for _ in range(4)
    ]
    for process in processes:
        process.start()
    assert [done.get(timeout=120) for _ in processes] == [True] * 4
    for process in processes:
        process.join()
    assert server.ranges() == RANGES
    assert list((cache / "partial").iterdir()) == []


def waited_for(path: Path) -> bool:
    """Whether somebody waits for the lock on a file, as the kernel tells it."""
    inode = f":{path.stat().st_ino} "
    return any("->" in line and inode in line for line in open("/proc/locks"))


def test_who_waited_takes_what_the_other_made(
    folder: Path, cache: Path, server: MirrorServer
) -> None:
    path = partial(cache)
    path.parent.mkdir(parents=True)
    entry(cache).parent.mkdir()
    result: list[bytes] = []
    with path.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        waiting = threading.Thread(target=lambda: result.append(weights(folder, cache)))
        waiting.start()
        while waiting.is_alive() and not waited_for(path):
            pass
        other.write(WEIGHTS)
        other.flush()
        path.rename(entry(cache))
    waiting.join()
    assert result == [WEIGHTS]
    assert server.requests == []
    assert not path.exists()


def test_who_ended_with_the_lock_stops_nobody(folder: Path, cache: Path) -> None:
    """A process that is killed while it fetches leaves its partial file, and no lock."""
    path = partial(cache)
    path.parent.mkdir(parents=True)
    holder = (
        "import fcntl, os, signal, sys; f = open(sys.argv[1], 'wb'); fcntl.flock(f, fcntl.LOCK_EX);"
        "f.write(bytes(100)); f.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", holder, path], check=False)
    assert path.stat().st_size == 100
    assert weights(folder, cache) == WEIGHTS


_WITHOUT_CLIENT = """
import sys
sys.modules["httpcore"] = None
from helios.core import ResourceKind, open_core
core = open_core(sys.argv[1], accept=sys.argv[2])
print(len(core.read_resource("template", ResourceKind.CHAT_TEMPLATE)))
core.map_weights("weights")
"""


def test_without_the_http_client_what_is_here_serves_and_the_extra_is_named(
    folder: Path, tmp_path: Path, server: MirrorServer
) -> None:
    whole = write_core(tmp_path / "whole")
    (whole / "resources" / NAMES["weights"]).unlink()
    locate(whole, "weights", url(server, "good", "weights"))
    ended = subprocess.run(
        [sys.executable, "-c", _WITHOUT_CLIENT, whole, NAMESPACE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout == f"{len(TEMPLATE)}\n"
    assert "needs httpcore). `pip install 'helios-serve[remote]'` installs that" in ended.stderr


def test_opening_a_core_imports_no_http_client() -> None:
    probe = "import sys, helios.core; sys.exit(bool({'httpx', 'httpcore'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HELIOS_CACHE": "/a/b", "XDG_CACHE_HOME": "/c"}, "/a/b"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/helios"),
        ({"XDG_CACHE_HOME": "relative"}, "~/.cache/helios"),
        ({}, "~/.cache/helios"),
    ],
)
def test_the_cache_lies_where_caches_lie(environment: dict[str, str], expected: str) -> None:
    assert default_cache(environment) == Path(expected).expanduser()


def test_a_mirrors_time_is_what_is_given(
    folder: Path, cache: Path, server: MirrorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[Patience] = []

    class Noting(Fetcher):
        def __init__(self, *, allow_private: bool, patience: Patience) -> None:
            waited.append(patience)
            super().__init__(allow_private=allow_private, patience=patience)

    monkeypatch.setattr("helios.core.fetch.Fetcher", Noting)
    for timeout_s in (None, 60.0):
        entries = ResourceCache(cache, allow_private_mirrors=True, mirror_timeout_s=timeout_s)
        open_core(folder, accept=NAMESPACE, cache=entries).find_resource("weights")
        shutil.rmtree(cache)
    usual, given = waited
    assert usual == Patience()
    assert (given.connect_s, given.silence_s, given.grace_s) == (60.0, 60.0, 120.0)
    assert given == replace(usual, connect_s=60.0, silence_s=60.0, grace_s=120.0)


def test_every_kind_of_resource_comes_from_afar(
    folder: Path, cache: Path, server: MirrorServer
) -> None:
    for name, (kind, content) in CONTENT.items():
        locate(folder, name, url(server, "good", name))
        assert opened(folder, cache).read_resource(name, ResourceKind(kind)) == content
