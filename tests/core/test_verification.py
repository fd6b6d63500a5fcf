"""Every byte is checked, and how fast is said beside what reading alone gives."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from helios.core import OpenedCore, open_core, verification
from helios.core.cache import ResourceCache
from helios.core.chunks import chunk_nbytes, open_content, read_on_all_cores
from helios.core.format import CHUNK_NBYTES
from helios.core.resources import WeightResource
from helios.core.verification import verify_content
from helios.errors import CoreError
from tests.core.logical_core import CORE_KEY, sample_index, write_index
from tests.core.mirror_server import serving
from tests.core.sample_core import NAMESPACE, write_core
from tests.core.test_mirrors import BY_NAME, locate, url


@pytest.fixture(params=["payload", "index 6", "index 4"])
def core(request: pytest.FixtureRequest, tmp_path: Path) -> OpenedCore:
    """A core in each carrier."""
    folder = tmp_path / "core"
    if request.param == "payload":
        write_core(folder)
    else:
        write_index(folder, *sample_index(int(request.param[-1])))
    return open_core(folder, accept=NAMESPACE, core_key=CORE_KEY)


def stored_nbytes(core: OpenedCore) -> dict[str, int]:
    resources = (*core.decoded.executables.values(), *core.decoded.weights.values())
    return {resource.id: resource.stored_nbytes for resource in resources}


class Progress:
    """Adds up what is said to be done, by whichever thread."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._adding = threading.Lock()

    def __call__(self, nbytes: int) -> None:
        with self._adding:
            self.nbytes += nbytes


def test_everything_is_checked_and_counted(core: OpenedCore) -> None:
    progress = Progress()
    verified = verify_content(core, progress)
    total = sum(stored_nbytes(core).values())
    assert verified.checked.nbytes == progress.nbytes == total
    assert verified.read.nbytes == total
    assert verified.checked.seconds > 0
    assert verified.read.seconds > 0


@pytest.mark.clause("CORE-4")
def test_a_flipped_bit_anywhere_is_found(core: OpenedCore) -> None:
    for resource, nbytes in stored_nbytes(core).items():
        path = core.find_resource(resource)
        good = path.read_bytes()
        for position in {0, nbytes // 2, nbytes - 1}:
            path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
            with pytest.raises(CoreError, match=rf"'{resource}'.*chunk \d is not what was signed"):
                verify_content(core, lambda nbytes: None)
        path.write_bytes(good)
    verify_content(core, lambda nbytes: None)


def test_reading_alone_is_a_sample(core: OpenedCore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_SAMPLE_NBYTES", 1)
    first = next(iter(stored_nbytes(core).values()))
    assert verify_content(core, lambda nbytes: None).read.nbytes == first


def test_content_is_read_by_as_many_threads_as_there_are_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the three chunks of the weights waits for the two others to be begun."""
    core = open_core(write_core(tmp_path / "core"), accept=NAMESPACE)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2})
    together = threading.Barrier(3, timeout=60)
    core.check_resource("weights", lambda nbytes: together.wait() and None)


@pytest.mark.parametrize("numbers", [range(50), [3, 7, 8, 40], [5]], ids=["all", "some", "one"])
def test_each_chunk_is_asked_for_once_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: Sequence[int]
) -> None:
    """But for the first, which is read at once."""
    content = WeightResource("weights", 50 * CHUNK_NBYTES - 4096, (b"",) * 50)
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(content.nbytes)
    asked: list[tuple[int, int]] = []
    read: list[int] = []

    def ask(descriptor: int, offset: int, nbytes: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_WILLNEED
        assert offset // CHUNK_NBYTES not in read
        asked.append((offset, nbytes))

    def take(number: int, pieces: Iterator[memoryview]) -> bool:
        read.append(number)
        return True

    monkeypatch.setattr(os, "posix_fadvise", ask)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    with open_content(path, content) as file:
        read_on_all_cores(file, content, numbers, take)
    assert read == list(numbers)
    expected = [(number * CHUNK_NBYTES, chunk_nbytes(content, number)) for number in numbers[1:]]
    assert asked == expected
    assert all(offset + nbytes <= content.nbytes for offset, nbytes in asked)


def test_what_is_elsewhere_is_fetched_before_the_clock_runs(tmp_path: Path) -> None:
    folder = write_core(tmp_path / "core")
    with serving(BY_NAME) as server:
        locate(folder, "weights", url(server, "good", "weights"))
        own = next(p for p in (folder / "resources").iterdir() if p.stat().st_size > 1 << 20)
        own.unlink()
        cache = ResourceCache(tmp_path / "cache", allow_private_mirrors=True)
        core = open_core(folder, accept=NAMESPACE, cache=cache)
        asked: list[int] = []
        verify_content(core, lambda nbytes: asked.append(len(server.requests)))
        assert set(asked) == {3}
