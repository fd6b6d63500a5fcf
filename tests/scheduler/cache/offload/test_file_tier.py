"""The file tier's threads: writing behind, reading ahead, and a scheduler that never waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from helios.scheduler.cache.offload import entry_folder
from helios.scheduler.cache.offload.contents import Content
from helios.scheduler.cache.offload.fetch import Fetch
from helios.scheduler.cache.offload.file_tier import FileTier
from helios.scheduler.cache.offload.keys import Entry
from tests.scheduler.cache.offload.entries import content_of, page

ROOMY = 1 << 30
WAIT_S = 60


class Gate:
    """Lets file operations through one by one, when the test says so."""

    def __init__(self) -> None:
        self._allowed = threading.Semaphore(0)
        self._arrived = threading.Semaphore(0)

    def pass_through(self) -> None:
        self._arrived.release()
        assert self._allowed.acquire(timeout=WAIT_S)

    def wait_for_one(self) -> None:
        assert self._arrived.acquire(timeout=WAIT_S)

    def let_through(self, count: int = 1) -> None:
        self._allowed.release(count)


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[FileTier]:
    made = FileTier(tmp_path, ROOMY)
    yield made
    made.close()


def fill(folder: Path, *entries: Entry) -> None:
    tier = FileTier(folder, ROOMY)
    for entry in entries:
        tier.save(entry, content_of(entry))
    tier.close()


def collect(fetch: Fetch) -> list[Content]:
    """Everything that comes."""
    contents = []
    while not fetch.finished:
        contents.append(next_of(fetch))
    return [content for content in contents if content is not None]


def next_of(fetch: Fetch) -> Content | None:
    """The next content; None where none comes any more."""
    fetch.wait(WAIT_S * 1000)
    return fetch.poll()


def test_what_was_saved_yesterday_is_fetched_today(tmp_path: Path) -> None:
    entries = [page(number, 10 + number) for number in range(40)]
    fill(tmp_path, *entries)
    tier = FileTier(tmp_path, ROOMY)
    assert all(entry.key in tier for entry in entries)
    assert collect(tier.fetch(entries)) == [content_of(entry) for entry in entries]
    tier.close()
    assert tier.counters.read == 40


def test_contents_end_before_the_first_that_is_missing(tmp_path: Path) -> None:
    fill(tmp_path, page(0), page(1), page(3))
    tier = FileTier(tmp_path, ROOMY)
    fetch = tier.fetch([page(0), page(1), page(2), page(3)])
    assert collect(fetch) == [content_of(page(0)), content_of(page(1))]
    assert collect(tier.fetch([page(2)])) == []
    assert collect(tier.fetch([])) == []
    tier.close()


def test_contents_that_are_there_already_are_not_read(tmp_path: Path) -> None:
    fill(tmp_path, page(1), page(3))
    tier = FileTier(tmp_path, ROOMY)
    ready = {0: b"zero", 2: b"two", 4: b"four"}
    fetch = tier.fetch([page(number) for number in range(5)], ready)
    assert collect(fetch) == [b"zero", content_of(page(1)), b"two", content_of(page(3)), b"four"]
    assert tier.counters.read == 2
    # A missing one ends the contents, though later ones are there.
    fetch = tier.fetch([page(1), page(2), page(3)], {2: b"three"})
    assert collect(fetch) == [content_of(page(1))]
    tier.close()


def test_the_reader_runs_ahead_no_further_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads on when something was polled; other fetches get their turn meanwhile."""
    fill(tmp_path, *(page(number) for number in range(6)))
    gate = Gate()
    real = entry_folder.read_file
    order: list[bytes] = []

    def read(folder: Path, entry: Entry) -> bytearray:
        gate.pass_through()
        order.append(entry.key)
        return real(folder, entry)

    monkeypatch.setattr(entry_folder, "read_file", read)
    tier = FileTier(tmp_path, ROOMY, ahead_nbytes=300)
    first = tier.fetch([page(number) for number in range(4)])
    gate.wait_for_one()
    second = tier.fetch([page(4), page(5)])
    gate.let_through()
    for _ in range(4):
        gate.wait_for_one()
        gate.let_through()
    assert collect(second) == [content_of(page(4)), content_of(page(5))]
    assert order == [page(number).key for number in (0, 1, 4, 2, 5)]
    assert next_of(first) == content_of(page(0))
    gate.wait_for_one()  # for page 3
    gate.let_through()
    assert collect(first) == [content_of(page(number)) for number in (1, 2, 3)]
    tier.close()


def test_polling_never_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, page(0))
    gate = Gate()
    real = entry_folder.read_file

    def read(folder: Path, entry: Entry) -> bytearray:
        gate.pass_through()
        return real(folder, entry)

    monkeypatch.setattr(entry_folder, "read_file", read)
    tier = FileTier(tmp_path, ROOMY)
    fetch = tier.fetch([page(0)])
    gate.wait_for_one()
    assert fetch.poll() is None
    assert not fetch.finished
    assert page(0).key in tier
    gate.let_through()
    assert next_of(fetch) == content_of(page(0))
    assert fetch.finished
    tier.close()


def test_a_cancelled_fetch_reads_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, page(0), page(1), page(2))
    gate = Gate()
    real = entry_folder.read_file

    def read(folder: Path, entry: Entry) -> bytearray:
        gate.pass_through()
        return real(folder, entry)

    monkeypatch.setattr(entry_folder, "read_file", read)
    tier = FileTier(tmp_path, ROOMY)
    fetch = tier.fetch([page(0), page(1)])
    gate.wait_for_one()
    fetch.cancel()
    gate.let_through(2)
    assert fetch.finished
    assert fetch.poll() is None
    assert collect(tier.fetch([page(2)])) == [content_of(page(2))]
    tier.close()
    assert tier.counters.read == 2


def test_what_the_writer_cannot_keep_up_with_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    real = entry_folder.write_file

    def write(folder: Path, entry: Entry, content: Content) -> None:
        gate.pass_through()
        real(folder, entry, content)

    monkeypatch.setattr(entry_folder, "write_file", write)
    tier = FileTier(tmp_path, ROOMY, queue_nbytes=250)
    tier.save(page(0), content_of(page(0)))
    gate.wait_for_one()  # what is being written still takes its room
    tier.save(page(1), content_of(page(1)))
    tier.save(page(1), content_of(page(1)))  # queued already: neither twice nor dropped
    tier.save(page(2), content_of(page(2)))
    assert tier.dropped == 1
    gate.let_through(3)
    tier.flush()
    tier.save(page(2), content_of(page(2)))
    tier.flush()
    assert [page(number).key in tier for number in range(3)] == [True] * 3
    assert tier.counters.written == 3
    tier.close()


def test_closing_writes_what_is_queued_and_ends_fetches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, page(0))
    tier = FileTier(tmp_path, ROOMY, ahead_nbytes=1)
    stuck = tier.fetch([page(0), page(1), page(2)], {2: b"two"})
    for number in range(1, 9):
        tier.save(page(number), content_of(page(number)))
    tier.close()
    tier.close()
    assert len(FileTier(tmp_path, ROOMY)) == 9
    assert len(collect(stuck)) <= 2
    assert collect(tier.fetch([page(5)])) == []
    assert collect(tier.fetch([page(5), page(6)], {0: b"five"})) == [b"five"]
    tier.save(page(20), content_of(page(20)))
    tier.flush()
    assert page(20).key not in tier


def test_closing_doesnt_wait_for_a_disk_that_is_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it holds up is written when it goes on; nothing else is, nor read from the device."""
    gate, writing = Gate(), entry_folder.write_file
    reading = entry_folder.read_file

    def write(folder: Path, entry: Entry, content: Content) -> None:
        gate.pass_through()
        writing(folder, entry, content)

    def read(folder: Path, entry: Entry) -> bytearray:
        gate.pass_through()
        return reading(folder, entry)

    def gone(entry: Entry) -> Content | None:
        raise AssertionError("the device is gone")

    fill(tmp_path, page(9))
    monkeypatch.setattr(entry_folder, "write_file", write)
    monkeypatch.setattr(entry_folder, "read_file", read)
    tier = FileTier(tmp_path, ROOMY)
    tier.save(page(0), content_of(page(0)))
    fetch = tier.fetch([page(9)])
    gate.wait_for_one()
    gate.wait_for_one()
    tier.save_later(page(1), gone)
    tier.close(within_s=0.0)
    tier.close(within_s=0.0)
    gate.let_through(2)
    tier.flush()
    assert page(0).key in tier
    assert (tier.dropped, tier.counters.written) == (1, 1)
    assert collect(fetch) in ([], [content_of(page(9))])
    tier.close(within_s=WAIT_S)


def test_nobody_waits_for_a_read_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither who asked for it nor who asks later; what is in memory comes all the same."""
    gate, reading = Gate(), entry_folder.read_file

    def read(folder: Path, entry: Entry) -> bytearray:
        gate.pass_through()
        return reading(folder, entry)

    fill(tmp_path, *(page(number) for number in range(3)))
    monkeypatch.setattr(entry_folder, "read_file", read)
    tier = FileTier(tmp_path, ROOMY, patience_s=0.0)
    hanging = tier.fetch([page(0), page(1)])
    gate.wait_for_one()
    assert hanging.finished
    assert tier.counters.read_failures == 0
    later = tier.fetch([page(2), page(1)], {0: b"two"})
    assert later.poll() == b"two"
    assert later.finished
    assert tier.counters.read_failures == 1
    gate.let_through(9)
    tier.close(within_s=WAIT_S)


def test_the_disk_is_read_again_once_it_has_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, reading, clock = Gate(), entry_folder.read_file, [0.0]

    def read(folder: Path, entry: Entry) -> bytearray:
        gate.pass_through()
        return reading(folder, entry)

    fill(tmp_path, page(0), page(1))
    monkeypatch.setattr(entry_folder, "read_file", read)
    monkeypatch.setattr("helios.scheduler.cache.offload.fetch.time.monotonic", lambda: clock[0])
    tier = FileTier(tmp_path, ROOMY, patience_s=3.0)
    hanging = tier.fetch([page(0)])
    gate.wait_for_one()
    assert not hanging.finished
    clock[0] = 3.0
    assert hanging.finished
    assert collect(tier.fetch([page(1)])) == []
    gate.let_through(2)
    answered = tier.fetch([page(1)])
    while answered.finished:  # until the first read is over
        answered = tier.fetch([page(1)])
    assert collect(answered) == [content_of(page(1))]
    tier.close()


def test_contents_that_a_hanging_disk_turns_away_leave_nothing_in_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, writing = Gate(), entry_folder.write_file

    def write(folder: Path, entry: Entry, content: Content) -> None:
        gate.pass_through()
        writing(folder, entry, content)

    monkeypatch.setattr(entry_folder, "write_file", write)
    tier = FileTier(tmp_path, ROOMY, queue_nbytes=page(0).nbytes)
    tier.save(page(0), content_of(page(0)))
    gate.wait_for_one()
    for number in range(1, 50):  # published, then evicted
        tier.save_later(page(number), content_of)
        tier.save(page(number), content_of(page(number)))
    assert tier.dropped == 49
    assert not tier._writer._queue
    gate.let_through(1)
    tier.flush()
    assert tier.counters.written == 1
    tier.close()


def test_a_failing_disk_neither_ends_the_threads_nor_blocks_anybody(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    tier = FileTier(tmp_path / "file", ROOMY)
    tier.save(page(0), content_of(page(0)))
    tier.flush()
    assert collect(tier.fetch([page(0)])) == []
    tier.save(page(1), content_of(page(1)))
    tier.flush()
    assert tier.counters.write_failures == 2
    assert len(tier) == 0
    tier.close()


def test_clearing_deletes_every_engines_files(tier: FileTier, tmp_path: Path) -> None:
    fill(tmp_path, page(7))
    tier.save(page(1), content_of(page(1)))
    tier.flush()
    tier.clear()
    assert page(1).key not in tier
    tier.flush()
    assert list(tmp_path.iterdir()) == []
    assert len(tier) == 0
    tier.save(page(1), content_of(page(1)))
    tier.flush()
    assert page(1).key in tier


def test_clearing_drops_what_is_queued_and_ends_fetches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, page(0))
    gate = Gate()
    real = entry_folder.write_file

    def write(folder: Path, entry: Entry, content: Content) -> None:
        gate.pass_through()
        real(folder, entry, content)

    monkeypatch.setattr(entry_folder, "write_file", write)
    tier = FileTier(tmp_path, ROOMY, queue_nbytes=250, ahead_nbytes=1)
    tier.save(page(1), content_of(page(1)))
    gate.wait_for_one()
    tier.save(page(2), content_of(page(2)))
    tier.save_later(page(3), content_of)
    fetch = tier.fetch([page(9), page(8)], {0: b"nine"})
    tier.clear()
    assert fetch.finished
    tier.save(page(4), content_of(page(4)))  # there is room for it
    gate.let_through(2)
    tier.flush()
    assert [entry.key in tier for entry in map(page, range(5))] == [False] * 4 + [True]
    assert (tier.dropped, len(list(tmp_path.iterdir()))) == (0, 1)
    tier.close()


def test_contents_are_read_by_the_writer_when_their_turn_comes(tier: FileTier) -> None:
    threads: list[str] = []

    def read(entry: Entry) -> Content | None:
        threads.append(threading.current_thread().name)
        return None if entry == page(1) else content_of(entry)

    for number in range(3):
        tier.save_later(page(number), read)
    tier.flush()
    assert threads == ["helios-cache-writer"] * 3
    assert [page(number).key in tier for number in range(3)] == [True, False, True]
    tier.save_later(page(0), read)  # there is a file
    tier.flush()
    assert len(threads) == 3
    assert collect(tier.fetch([page(0)])) == [content_of(page(0))]


def test_a_content_replaces_one_that_would_have_been_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    real = entry_folder.write_file

    def write(folder: Path, entry: Entry, content: Content) -> None:
        gate.pass_through()
        real(folder, entry, content)

    def gone(entry: Entry) -> Content | None:
        raise AssertionError("it must not be read any more")

    monkeypatch.setattr(entry_folder, "write_file", write)
    tier = FileTier(tmp_path, ROOMY)
    tier.save(page(0), content_of(page(0)))
    gate.wait_for_one()
    tier.save_later(page(1), gone)
    tier.save(page(1), content_of(page(1)))
    tier.save_later(page(1), gone)
    gate.let_through(2)
    tier.flush()
    assert collect(tier.fetch([page(1)])) == [content_of(page(1))]
    tier.close()


def test_what_other_engines_write_becomes_known(tmp_path: Path) -> None:
    one, idle = FileTier(tmp_path, ROOMY), FileTier(tmp_path, ROOMY, look_again_s=0.001)
    fill(tmp_path, page(1))
    assert page(1).key not in one
    one.look_again()
    one.flush()
    assert page(1).key in one
    for path in tmp_path.iterdir():
        path.unlink()
    one.look_again()
    one.flush()
    assert page(1).key not in one
    # An idle engine looks by itself.
    fill(tmp_path, page(2))
    while page(2).key not in idle:
        idle.flush()
    one.close()
    idle.close()
