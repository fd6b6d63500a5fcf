"""What an hour of fuzzing taught, replayed: the stored inputs that together reach what it reached.

Nothing but a refusal comes of any of them, as of any other hostile input. `fuzz.corpus` says how
they are stored and `docs/testing.md` how to make them anew.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from fuzz import corpus
from fuzz.targets import TARGETS, Target
from hypothesis import given
from hypothesis import strategies as st

# Each target's inputs are dealt to so many tests, which may run at once.
SLICES = 3
# A damaged location set is as good as none; nothing that it says is refused.
NEVER_REFUSE = {"locations"}
STORED_LIMIT_NBYTES = 300 << 10  # every copy of the repository holds them, and all before


def replay(target: Target, inputs: Iterable[bytes], folder: Path) -> list[bool]:
    """Whether each input is accepted. One that does anything else is left in the folder."""
    accepted = []
    for data in inputs:
        try:
            accepted.append(target.accepts(data))
        except BaseException as error:
            path = folder / hashlib.sha256(data).hexdigest()[:16]
            path.write_bytes(data)
            error.add_note(f"the input is {path}; python -m fuzz.one TARGET FILE runs it alone")
            raise
    return accepted


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("part", range(SLICES))
def test_replay(name: str, part: int, tmp_path: Path) -> None:
    replay(TARGETS[name], corpus.read(name)[part::SLICES], tmp_path)


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_has_inputs_of_both_kinds(name: str, tmp_path: Path) -> None:
    outcomes = set(replay(TARGETS[name], corpus.read(name), tmp_path))
    assert outcomes == ({True} if name in NEVER_REFUSE else {True, False})


def test_nothing_else_is_stored_and_little_at_that() -> None:
    paths = list(corpus.FOLDER.iterdir())
    assert set(paths) == {corpus.path_of(name) for name in TARGETS}
    assert sum(path.stat().st_size for path in paths) <= STORED_LIMIT_NBYTES


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_that_breaks_at_one_input_fails_the_replay(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = corpus.read(name)
    at = len(inputs) // 2

    def broken(data: bytes) -> None:
        if data == inputs[at]:
            raise ValueError("nobody expected this")

    changed = {**TARGETS, name: replace(TARGETS[name], run=broken)}
    monkeypatch.setattr(sys.modules[__name__], "TARGETS", changed)
    for part in range(SLICES):
        if part != at % SLICES:
            test_replay(name, part, tmp_path)
    with pytest.raises(ValueError, match="nobody expected this") as raised:
        test_replay(name, at % SLICES, tmp_path)
    (left,) = tmp_path.iterdir()
    assert left.read_bytes() == inputs[at]
    assert str(left) in raised.value.__notes__[0]


@given(inputs=st.lists(st.binary(max_size=40), max_size=12))
def test_stored_inputs_come_back(inputs: list[bytes]) -> None:
    packed = corpus.pack(inputs)
    assert corpus.unpack(packed) == sorted(set(inputs), key=lambda content: (len(content), content))
    assert corpus.pack(reversed(inputs)) == packed


INPUTS = [b"", b"a", b"the sea " * 20, bytes(range(256))]
PACKED = corpus.pack(INPUTS)


@given(at=st.integers(0, len(PACKED) - 1), bit=st.integers(0, 7))
def test_an_altered_corpus_is_never_read_as_another(at: int, bit: int) -> None:
    altered = bytearray(PACKED)
    altered[at] ^= 1 << bit
    try:
        assert corpus.unpack(bytes(altered)) == INPUTS  # a bit without meaning in the header
    except corpus.DamagedCorpus:
        return


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (b"", "is cut short"),
        (PACKED[:-1], "is cut short"),
        (PACKED + b"\0", "has more than one frame"),
        (PACKED + PACKED, "has more than one frame"),
        (PACKED[:-1] + bytes([PACKED[-1] ^ 1]), "is damaged"),
        (zstandard.compress(b"\x01\0\0\0a\x05\0\0\0the"), "ends within its input 1"),
        (zstandard.compress(b"\x01\0\0\0a\x05\0"), "ends within its input 1"),
    ],
)
def test_a_damaged_corpus_is_refused(packed: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(corpus.DamagedCorpus, match=said):
        corpus.unpack(packed)
    corpus.path_of("frame", tmp_path).write_bytes(packed)
    with pytest.raises(corpus.DamagedCorpus, match=rf"frame\.zst {said}"):
        corpus.read("frame", tmp_path)


def test_a_corpus_is_written_over_the_one_before(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    assert corpus.read("frame", folder) == []
    corpus.write("frame", INPUTS, folder)
    corpus.write("frame", INPUTS[:2], folder)
    assert corpus.read("frame", folder) == INPUTS[:2]
