"""A cache in real life: processes that are killed while they fetch, files that are removed while
they are filled, disks that are full, folders that can't be written."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from pathlib import Path

import pytest

from helios.core.partial_files import locked
from helios.errors import CoreError
from tests.core.cache.cached_core import CHUNK, entry, holds_first_chunk, partial, weights
from tests.core.mirror_server import MirrorServer
from tests.core.sample_core import NAMESPACE, WEIGHTS
from tests.core.test_mirrors import RANGES, locate, url

# Processes start as new interpreters: nothing is shared but the files.
CONTEXT = multiprocessing.get_context("spawn")


def _obtain(folder: Path, cache: Path, done: Queue[bool]) -> None:
    done.put(weights(folder, cache) == WEIGHTS)


def start(folder: Path, cache: Path, done: Queue[bool]) -> BaseProcess:
    process = CONTEXT.Process(target=_obtain, args=(folder, cache, done), daemon=True)
    process.start()
    return process


def waiting_for(path: Path) -> int:
    """How many wait for the lock on a file, as the kernel tells it."""
    inode = f":{path.stat().st_ino} "
    with open("/proc/locks") as locks:
        return sum("->" in line and inode in line for line in locks)


def test_others_go_on_where_one_was_killed(folder: Path, cache: Path, server: MirrorServer) -> None:
    locate(folder, "weights", url(server, "gated-after-first", "weights"))
    done: Queue[bool] = CONTEXT.Queue()
    first = start(folder, cache, done)
    while first.is_alive() and not holds_first_chunk(partial(cache)):
        pass
    others = [start(folder, cache, done) for _ in range(3)]
    while all(other.is_alive() for other in others) and waiting_for(partial(cache)) < 3:
        pass
    first.kill()  # in the middle of two chunks
    first.join()
    server.gate.set()
    assert [done.get(timeout=120) for _ in others] == [True] * 3
    for other in others:
        other.join()
    # The first chunk was taken from what the killed process left.
    assert server.ranges().count(RANGES[0]) == 1
    assert sorted(set(server.ranges())) == RANGES
    assert entry(cache).read_bytes() == WEIGHTS
    assert list((cache / "partial").iterdir()) == []


def test_one_killed_after_another_harms_nothing(
    folder: Path, cache: Path, server: MirrorServer
) -> None:
    locate(folder, "weights", url(server, "gated-after-first", "weights"))
    done: Queue[bool] = CONTEXT.Queue()
    for _ in range(2):
        victim = start(folder, cache, done)
        while victim.is_alive() and not holds_first_chunk(partial(cache)):
            pass
        victim.kill()
        victim.join()
        assert not entry(cache).exists()
        # Something of a chunk that was being written.
        with partial(cache).open("r+b") as file:
            file.seek(CHUNK)
            file.write(WEIGHTS[CHUNK : 2 * CHUNK - 1])
    server.gate.set()
    assert weights(folder, cache) == WEIGHTS
    assert server.ranges().count(RANGES[0]) == 1


@pytest.mark.parametrize("removed", ["file", "folder", "cache"])
def test_a_file_that_is_removed_while_it_is_filled_is_filled_again(
    folder: Path, cache: Path, server: MirrorServer, removed: str
) -> None:
    locate(folder, "weights", url(server, "gated", "weights"))
    result: list[bytes] = []
    filling = threading.Thread(target=lambda: result.append(weights(folder, cache)))
    filling.start()
    while filling.is_alive() and len(server.requests) < len(RANGES):
        pass
    match removed:
        case "file":
            partial(cache).unlink()
        case "folder":
            shutil.rmtree(cache / "partial")
        case "cache":
            shutil.rmtree(cache)
    server.gate.set()
    filling.join()
    assert result == [WEIGHTS]
    assert entry(cache).read_bytes() == WEIGHTS
    assert server.ranges() == sorted(2 * RANGES)


def test_whose_file_was_removed_does_not_take_the_one_that_another_fills(
    folder: Path, cache: Path, server: MirrorServer
) -> None:
    locate(folder, "weights", url(server, "gated", "weights"))
    result: list[bytes] = []
    filling = threading.Thread(target=lambda: result.append(weights(folder, cache)))
    filling.start()
    while filling.is_alive() and len(server.requests) < len(RANGES):
        pass
    partial(cache).unlink()
    with partial(cache).open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(WEIGHTS[:CHUNK])
        other.flush()
        server.gate.set()
        while filling.is_alive() and waiting_for(partial(cache)) < 1:
            pass
        assert not entry(cache).exists()
    filling.join()
    assert result == [WEIGHTS]
    assert server.ranges() == sorted(RANGES + RANGES[1:])


def test_a_file_that_is_always_removed_is_given_up(
    folder: Path, cache: Path, server: MirrorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def remove(descriptor: int) -> None:
        partial(cache).unlink()
        fsync(descriptor)

    monkeypatch.setattr("helios.core.cache.os.fsync", remove)
    with pytest.raises(CoreError, match="its file was removed 3 times while it was filled"):
        weights(folder, cache)


def test_the_folder_of_entries_may_go_at_the_last_moment(
    folder: Path, cache: Path, server: MirrorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync
    removed: list[Path] = []

    def remove_once(descriptor: int) -> None:
        if not removed:
            removed.append(cache / "resources")
            removed[0].rmdir()
        fsync(descriptor)

    monkeypatch.setattr("helios.core.cache.os.fsync", remove_once)
    assert weights(folder, cache) == WEIGHTS
    assert server.ranges() == RANGES  # nothing of what was fetched is fetched again


def test_a_process_that_forked_meanwhile_holds_no_lock(tmp_path: Path) -> None:
    """It has the file open as well, and may live long."""
    path = tmp_path / "partial"
    with locked(path) as file:
        forked = os.dup(file.fileno())
    try:
        with path.open("rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(forked)


def test_a_full_disk_is_named_and_what_was_fetched_is_kept(
    folder: Path, cache: Path, server: MirrorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not before the first chunk is there, which is written in two pieces.
    locate(folder, "weights", url(server, "gated-after-first", "weights"))
    pwrite = os.pwrite

    def almost_full(descriptor: int, content: memoryview, position: int) -> int:
        if position >= CHUNK:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = pwrite(descriptor, content[: CHUNK // 2], position)
        if position + written == CHUNK:
            server.gate.set()
        return written

    with monkeypatch.context() as patch:
        patch.setattr("helios.core.fetch.os.pwrite", almost_full)
        with pytest.raises(CoreError, match=r"cache can't be written.*No space left.*--cache-dir"):
            weights(folder, cache)
    assert not entry(cache).exists()
    server.requests.clear()
    assert weights(folder, cache) == WEIGHTS
    assert server.ranges() == RANGES[1:]


def test_content_is_on_disk_before_it_has_its_name(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(
            os.pread(descriptor, len(WEIGHTS), 0) == WEIGHTS and not entry(cache).exists()
        )
        fsync(descriptor)

    monkeypatch.setattr("helios.core.cache.os.fsync", watched)
    assert weights(folder, cache) == WEIGHTS
    assert synced == [True]


_USE = """
import sys
from helios.core import open_core
from helios.core.cache import ResourceCache
from pathlib import Path
core = open_core(sys.argv[1], accept=sys.argv[2], cache=ResourceCache(
    Path(sys.argv[3]), allow_private_mirrors=True))
try:
    core.map_weights("weights")
except Exception as error:
    sys.exit(str(error))
"""


def _without_privilege() -> list[str]:
    """What starts a process for which modes of files hold, though root runs it."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere, and setpriv isn't there")
    return ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"]


def test_a_cache_that_cant_be_written_serves_what_it_has(
    folder: Path, cache: Path, server: MirrorServer
) -> None:
    def use() -> str:
        command = [*_without_privilege(), sys.executable, "-c", _USE, folder, NAMESPACE, cache]
        return subprocess.run(command, capture_output=True, text=True, check=False).stderr

    weights(folder, cache)
    folders = [cache, cache / "resources", cache / "partial"]
    entry(cache).chmod(0o400)
    for path in folders:
        path.chmod(0o500)
    try:
        assert use() == ""
        assert server.ranges() == RANGES
        entry(cache).chmod(0o600)
        os.truncate(entry(cache), 0)
        assert "cache can't be written ([Errno 13]" in use()
    finally:
        for path in folders:
            path.chmod(0o700)
