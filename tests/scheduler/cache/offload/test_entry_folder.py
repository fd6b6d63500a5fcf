"""The folder of content files: whole or nothing, bounded, shared, and never trusted."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from helios.errors import HeliosError
from helios.scheduler.cache.offload import entry_folder, file_format
from helios.scheduler.cache.offload.entry_folder import EntryFolder
from helios.scheduler.cache.offload.file_format import HEADER_NBYTES, file_name, named_entry
from helios.scheduler.cache.offload.keys import Entry
from tests.scheduler.cache.offload.entries import content_of, page, state

FILE = HEADER_NBYTES + 100
ROOMY = 1 << 30


def used_at(folder: Path, entry: Entry, seconds: float) -> None:
    os.utime(folder / file_name(entry), (seconds, seconds))


def test_what_was_written_is_read_by_another(tmp_path: Path) -> None:
    one = EntryFolder(tmp_path / "new" / "folder", ROOMY)
    entries = [page(1), page(2, 0), page(3, 5000), state(4, node=1, length=7)]
    assert all(one.write(entry, content_of(entry)) for entry in entries)
    assert one.nbytes == sum(HEADER_NBYTES + entry.nbytes for entry in entries)
    other = EntryFolder(tmp_path / "new" / "folder", ROOMY)
    assert other.nbytes == one.nbytes
    assert all(other.read(entry) == content_of(entry) for entry in entries)
    assert other.lengths_after(page(1).key) == [7]
    assert other.counters.read == 4


def test_files_and_folder_are_the_users_alone(tmp_path: Path) -> None:
    folder = EntryFolder(tmp_path / "cache", ROOMY)
    folder.write(page(1), content_of(page(1)))
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "cache" / file_name(page(1))).stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o720])
def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    with pytest.raises(HeliosError, match=r"written by other users.*chmod 700"):
        EntryFolder(tmp_path / "cache", ROOMY)
    (tmp_path / "cache").chmod(0o755)
    assert EntryFolder(tmp_path / "cache", ROOMY).write(page(1), content_of(page(1)))


def test_names_stand_for_entries() -> None:
    for entry in (page(1), state(2, node=1, length=0), state(3, node=1, length=31)):
        assert named_entry(file_name(entry), HEADER_NBYTES + 100) == entry
    for name in ("", "x.helioskv", file_name(page(1)).upper(), file_name(page(1)) + ".tmp"):
        assert named_entry(name, 300) is None


def flip(place: int) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        changed = bytearray(content)
        changed[place] ^= 1
        return bytes(changed)

    return change


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    **{f"byte {place}": flip(place) for place in range(HEADER_NBYTES)},
    "first of the content": flip(HEADER_NBYTES),
    "last of the content": flip(-1),
    "cut": lambda content: content[:-1],
    "cut in the header": lambda content: content[:50],
    "empty": lambda content: b"",
    "longer": lambda content: content + b"x",
    "something else": lambda content: b"#!/bin/sh\n" * 40,
}


@pytest.mark.parametrize("change", DAMAGE.values(), ids=DAMAGE)
def test_damaged_files_are_dropped_and_never_used(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    folder = EntryFolder(tmp_path, ROOMY)
    entry = page(1)
    folder.write(entry, content_of(entry))
    path = tmp_path / file_name(entry)
    path.write_bytes(change(path.read_bytes()))
    assert folder.read(entry) is None
    assert not path.exists()
    assert entry.key not in folder
    assert (folder.counters.damaged, folder.counters.read, folder.nbytes) == (1, 0, 0)
    # The place is free for the right content.
    assert folder.write(entry, content_of(entry))
    assert folder.read(entry) == content_of(entry)


def test_a_file_under_another_ones_name_is_not_used(tmp_path: Path) -> None:
    folder = EntryFolder(tmp_path, ROOMY)
    for entry in (page(1), state(2, node=1, length=3)):
        folder.write(entry, content_of(entry))
    (tmp_path / file_name(page(1))).replace(tmp_path / file_name(page(9)))
    snapshot, moved = state(2, node=1, length=3), state(2, node=1, length=4)
    (tmp_path / file_name(snapshot)).replace(tmp_path / file_name(moved))
    folder = EntryFolder(tmp_path, ROOMY)
    assert page(9).key in folder
    assert folder.read(page(9)) is None
    assert folder.read(moved) is None
    assert folder.counters.damaged == 2


def test_content_of_another_size_than_asked_for_is_not_used(tmp_path: Path) -> None:
    folder = EntryFolder(tmp_path, ROOMY)
    folder.write(page(1, 100), content_of(page(1, 100)))
    assert folder.read(page(1, 64)) is None
    assert folder.counters.damaged == 1


def test_links_and_other_things_under_a_name_are_not_followed(tmp_path: Path) -> None:
    folder = EntryFolder(tmp_path / "cache", ROOMY)
    other = EntryFolder(tmp_path / "other", ROOMY)
    other.write(page(1), content_of(page(1)))
    (tmp_path / "cache" / file_name(page(1))).symlink_to(tmp_path / "other" / file_name(page(1)))
    os.mkfifo(tmp_path / "cache" / file_name(page(2)))
    (tmp_path / "cache" / file_name(page(3))).mkdir()
    for number in (1, 2, 3):
        assert folder.read(page(number)) is None
    assert folder.counters.read == 0
    assert other.read(page(1)) == content_of(page(1))


def test_foreign_files_are_left_alone_and_not_counted_as_ours(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(bytes(1 << 20))
    (tmp_path / "subfolder").mkdir()
    folder = EntryFolder(tmp_path, 3 * FILE)
    for number in range(9):
        assert folder.write(page(number), content_of(page(number)))
    assert folder.counters.foreign == 2
    folder.clear()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "subfolder"]


def test_the_folder_stays_within_its_limit_and_the_oldest_go_first(tmp_path: Path) -> None:
    folder = EntryFolder(tmp_path, 4 * FILE)
    for number in range(4):
        assert folder.write(page(number), content_of(page(number)))
        used_at(tmp_path, page(number), 1000 + number)
    assert folder.read(page(0)) is not None  # used now
    assert folder.write(page(4), content_of(page(4)))
    assert [page(n).key in folder for n in range(5)] == [True, False, True, True, True]
    assert folder.counters.evicted == 1
    for number in range(5, 50):
        assert folder.write(page(number), content_of(page(number)))
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 4 * FILE


def test_what_others_used_is_known_before_anything_is_deleted(tmp_path: Path) -> None:
    limit = 64 * FILE
    one, other = EntryFolder(tmp_path, limit), EntryFolder(tmp_path, limit)
    for number in range(62):
        one.write(page(number), content_of(page(number)))
        used_at(tmp_path, page(number), 1000 + number)
    one.list_again()
    assert other.read(page(0)) is not None
    for number in range(62, 65):
        one.write(page(number), content_of(page(number)))
    fresh = EntryFolder(tmp_path, limit)
    assert fresh.nbytes <= limit
    # A sixteenth of the limit was freed at once.
    assert [page(n).key in fresh for n in range(7)] == [True, *[False] * 4, True, True]


def test_what_another_has_written_meanwhile_counts_once(tmp_path: Path) -> None:
    one, other = EntryFolder(tmp_path, 64 * FILE), EntryFolder(tmp_path, 64 * FILE)
    for number in range(6):
        one.write(page(number), content_of(page(number)))
    other.write(page(7), content_of(page(7)))
    assert one.write(page(7), content_of(page(7)))
    assert one.nbytes == 7 * FILE


def test_what_is_larger_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    folder = EntryFolder(tmp_path, 4 * FILE)
    folder.write(page(1), content_of(page(1)))
    assert not folder.write(page(2, 4 * FILE), bytes(4 * FILE))
    assert page(1).key in folder


def test_files_that_others_deleted_are_missing_and_can_be_written_again(tmp_path: Path) -> None:
    folder = EntryFolder(tmp_path, ROOMY)
    folder.write(page(1), content_of(page(1)))
    (tmp_path / file_name(page(1))).unlink()
    assert folder.read(page(1)) is None
    assert (folder.counters.missing, folder.nbytes) == (1, 0)
    assert folder.write(page(1), content_of(page(1)))
    assert folder.read(page(1)) == content_of(page(1))


def test_a_deleted_folder_is_made_again(tmp_path: Path) -> None:
    folder = EntryFolder(tmp_path / "cache", ROOMY)
    (tmp_path / "cache").rmdir()
    assert not folder.write(page(1), content_of(page(1)))
    assert folder.counters.write_failures == 1
    assert folder.write(page(1), content_of(page(1)))
    assert folder.read(page(1)) == content_of(page(1))


def test_what_others_wrote_is_read_though_it_was_not_listed(tmp_path: Path) -> None:
    one, other = EntryFolder(tmp_path, ROOMY), EntryFolder(tmp_path, ROOMY)
    one.write(page(1), content_of(page(1)))
    assert page(1).key not in other
    assert other.read(page(1)) == content_of(page(1))
    other.list_again()
    assert page(1).key in other


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
def test_a_disk_that_takes_nothing_is_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    """Nothing is left behind, what is there can be read, and one line says so."""
    folder = EntryFolder(tmp_path, ROOMY)
    folder.write(page(1), content_of(page(1)))

    def refuse(self: Path, target: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "replace", refuse)
    for number in (2, 3):
        assert not folder.write(page(number), content_of(page(number)))
    assert folder.counters.write_failures == 2
    assert [path.name for path in tmp_path.iterdir()] == [file_name(page(1))]
    assert folder.read(page(1)) == content_of(page(1))
    assert len(caplog.records) == 1
    assert os.strerror(code) in caplog.text
    monkeypatch.undo()
    assert folder.write(page(2), content_of(page(2)))


def test_a_folder_that_cannot_be_is_survived(tmp_path: Path) -> None:
    """A file lies where the folder should."""
    (tmp_path / "file").write_bytes(b"mine")
    folder = EntryFolder(tmp_path / "file" / "cache", ROOMY)
    assert not folder.write(page(1), content_of(page(1)))
    assert folder.read(page(1)) is None
    assert folder.counters.write_failures == 1
    assert folder.counters.read_failures == 1
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_reading_survives_a_disk_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = EntryFolder(tmp_path, ROOMY)
    folder.write(page(1), content_of(page(1)))

    def fail(descriptor: int, buffers: list[memoryview]) -> int:
        raise OSError(errno.EIO, "bad sector")

    with monkeypatch.context() as context:
        context.setattr(file_format.os, "readv", fail)
        assert folder.read(page(1)) is None
    assert folder.counters.read_failures == 1
    assert folder.read(page(1)) == content_of(page(1))


def test_files_half_written_long_ago_are_deleted(tmp_path: Path) -> None:
    for name, age_s in (("old.tmp", entry_folder._ABANDONED_S + 60), ("new.tmp", 60)):
        (tmp_path / name).write_bytes(bytes(10))
        moment = (tmp_path / name).stat().st_mtime - age_s
        os.utime(tmp_path / name, (moment, moment))
    folder = EntryFolder(tmp_path, ROOMY)
    assert [path.name for path in tmp_path.iterdir()] == ["new.tmp"]
    assert (folder.counters.foreign, folder.nbytes) == (0, 0)


def test_a_known_entry_is_not_written_again(tmp_path: Path) -> None:
    folder = EntryFolder(tmp_path, ROOMY)
    folder.write(page(1), content_of(page(1)))
    assert folder.write(page(1), b"another")
    assert folder.read(page(1)) == content_of(page(1))
    assert folder.counters.written == 1


def test_nothing_is_known_while_files_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of another engine are deleted too, and none can be found on the way."""
    EntryFolder(tmp_path, ROOMY).write(page(2), content_of(page(2)))
    folder = EntryFolder(tmp_path, ROOMY)
    folder.write(page(1), content_of(page(1)))
    found: list[int] = []
    unlink = Path.unlink

    def watched(path: Path, missing_ok: bool = False) -> None:
        found.append(len(folder))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", watched)
    folder.clear()
    assert found == [0, 0]
    assert not list(tmp_path.iterdir())
