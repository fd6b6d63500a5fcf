"""Weight files that are read into memory of their own, and those that are mapped."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from helios.core import weights
from helios.core.format import CHUNK_NBYTES
from helios.core.resources import WeightResource
from helios.errors import CoreError

NBYTES = 2 * CHUNK_NBYTES + 4099


@pytest.fixture(scope="module")
def content() -> bytes:
    return np.random.default_rng(1).bytes(NBYTES)


@pytest.fixture
def stored(tmp_path: Path, content: bytes) -> tuple[Path, WeightResource]:
    path = tmp_path / "weights"
    path.write_bytes(content)
    starts = range(0, NBYTES, CHUNK_NBYTES)
    digests = tuple(sha256(content[at : at + CHUNK_NBYTES]).digest() for at in starts)
    return path, WeightResource("weights", NBYTES, digests)


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("limit", [0, weights.OWN_MEMORY_NBYTES])
def test_content_is_that_of_the_file(
    stored: tuple[Path, WeightResource],
    content: bytes,
    limit: int,
    verify: bool,
    copied: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(weights, "OWN_MEMORY_NBYTES", limit)
    mapped = weights.map_file(*stored, verify=verify, copied=copied)
    assert mapped.content == content
    assert mapped.content.readonly
    mapped.close()


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("limit", [0, weights.OWN_MEMORY_NBYTES])
def test_a_damaged_chunk_is_named(
    stored: tuple[Path, WeightResource], limit: int, copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "OWN_MEMORY_NBYTES", limit)
    with stored[0].open("r+b") as file:
        file.seek(CHUNK_NBYTES + 7)
        file.write(b"damage")
    with pytest.raises(CoreError, match="chunk 1 is not what was signed"):
        weights.map_file(*stored, verify=True, copied=copied)


def test_what_is_copied_takes_no_memory_of_its_own(
    stored: tuple[Path, WeightResource], content: bytes
) -> None:
    with weights.map_file(*stored, verify=True, copied=True).content as seen:
        with stored[0].open("r+b") as file:
            file.write(b"the file's own pages")
        assert bytes(seen[:20]) == b"the file's own pages"
        assert seen[20:] == content[20:]


def test_own_memory_stays_as_it_was_verified(
    stored: tuple[Path, WeightResource], content: bytes
) -> None:
    if weights._huge_pages(NBYTES) is None:
        pytest.skip("this system has no huge pages on request")
    mapped = weights.map_file(*stored, verify=True)
    stored[0].write_bytes(b"")
    assert mapped.content == content
    mapped.close()


def test_tiny_and_large_files_are_mapped() -> None:
    assert weights._huge_pages(weights.HUGE_PAGE_NBYTES - 1) is None
    assert weights._huge_pages(weights.OWN_MEMORY_NBYTES + 1) is None
