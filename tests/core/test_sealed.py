"""The AES-GCM chunk reader: content opens in its own place and under its own key, or not at all.

Commitments are made to fit whatever bytes a test stores, so that only the cipher can object.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helios.core.format import CHUNK_NBYTES, SEALED_STEP_NBYTES, TAG_NBYTES
from helios.core.resources import ResourceKind, SealedResource
from helios.core.sealed import key_id, open_sealed, read_core_key
from helios.errors import CoreError
from tests.core.logical_core import CORE_KEY, committed, seal

# Three whole chunks and a short one, each with bytes of its own.
CONTENT = b"".join(bytes([number]) * SEALED_STEP_NBYTES for number in range(3)) + b"the rest"
RESOURCE, STORED = seal("content", ResourceKind.WEIGHTS, CONTENT)
COUNT = len(RESOURCE.chunk_sha256)


def opened(path: Path, resource: SealedResource, stored: bytes, key: bytes = CORE_KEY) -> bytes:
    path.write_bytes(stored)
    output = bytearray(resource.decoded_nbytes)
    open_sealed(path, resource, key, memoryview(output))
    return bytes(output)


def chunks_of(stored: bytes) -> list[bytes]:
    return [stored[at : at + CHUNK_NBYTES] for at in range(0, len(stored), CHUNK_NBYTES)]


@pytest.mark.parametrize(
    "nbytes",
    [
        0,
        1,
        SEALED_STEP_NBYTES - 1,
        SEALED_STEP_NBYTES,
        SEALED_STEP_NBYTES + 1,
        2 * SEALED_STEP_NBYTES,
        2 * SEALED_STEP_NBYTES + 7,
    ],
)
def test_every_length_opens(tmp_path: Path, nbytes: int) -> None:
    content = (bytes(range(251)) * (nbytes // 251 + 1))[:nbytes]
    resource, stored = seal("some", ResourceKind.ORACLE, content)
    assert len(stored) == resource.stored_nbytes
    assert opened(tmp_path / "file", resource, stored) == content


def flipped(stored: bytes, position: int, bit: int) -> bytes:
    damaged = bytearray(stored)
    damaged[position] ^= 1 << bit
    return bytes(damaged)


@pytest.mark.clause("CORE-8")
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=40), bit=st.integers(0, 7), data=st.data())
def test_a_flipped_bit_is_refused(
    tmp_path: Path, content: bytes, bit: int, data: st.DataObject
) -> None:
    resource, stored = seal("short", ResourceKind.TOKENIZER, content)
    damaged = flipped(stored, data.draw(st.integers(0, len(stored) - 1)), bit)
    with pytest.raises(CoreError, match=r"resource 'short': chunk 0 doesn't authenticate"):
        opened(tmp_path / "file", committed(resource, damaged), damaged)


@pytest.mark.clause("CORE-8")
@pytest.mark.parametrize(
    ("position", "chunk"), [(0, 0), (CHUNK_NBYTES - 1, 0), (CHUNK_NBYTES, 1), (-17, 3), (-1, 3)]
)
def test_the_chunk_of_a_flipped_bit_is_named(tmp_path: Path, position: int, chunk: int) -> None:
    damaged = flipped(STORED, position, 5)
    with pytest.raises(CoreError, match=rf"chunk {chunk} doesn't authenticate"):
        opened(tmp_path / "file", committed(RESOURCE, damaged), damaged)


@pytest.mark.clause("CORE-8")
@pytest.mark.parametrize(
    ("order", "first_wrong"),
    [
        pytest.param([0, 2, 1, 3], 1, id="swapped"),
        pytest.param([0, 1, 1, 3], 2, id="repeated"),
        pytest.param([1, 2, 0, 3], 0, id="reordered"),
    ],
)
def test_chunks_out_of_place_are_refused(
    tmp_path: Path, order: list[int], first_wrong: int
) -> None:
    chunks = chunks_of(STORED)
    stored = b"".join(chunks[number] for number in order)
    assert len(stored) == len(STORED)
    resource = committed(RESOURCE, stored)
    with pytest.raises(CoreError, match=rf"chunk {first_wrong} doesn't authenticate"):
        opened(tmp_path / "file", resource, stored)


@pytest.mark.clause("CORE-8")
@pytest.mark.parametrize("missing", [0, 1, COUNT - 1])
def test_a_missing_chunk_is_refused(tmp_path: Path, missing: int) -> None:
    chunks = chunks_of(STORED)
    stored = b"".join(chunks[:missing] + chunks[missing + 1 :])
    with pytest.raises(CoreError, match=rf"has {len(stored)} bytes, not the signed {len(STORED)}"):
        opened(tmp_path / "file", RESOURCE, stored)
    # A publisher's mistake: signed as that many chunks, where more were sealed.
    content_nbytes = len(stored) - TAG_NBYTES * (COUNT - 1)
    shorter = committed(replace(RESOURCE, decoded_nbytes=content_nbytes), stored)
    with pytest.raises(CoreError, match="chunk 0 doesn't authenticate"):
        opened(tmp_path / "file", shorter, stored)


@pytest.mark.clause("CORE-8")
def test_an_additional_chunk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CoreError, match="not the signed"):
        opened(tmp_path / "file", RESOURCE, STORED + STORED[:CHUNK_NBYTES])


@pytest.mark.clause("CORE-8")
def test_a_wrong_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CoreError, match="chunk 0 doesn't authenticate"):
        opened(tmp_path / "file", RESOURCE, STORED, key=bytes(32))


@pytest.mark.clause("CORE-5", "CORE-8")
@pytest.mark.parametrize(
    "taken_for",
    [
        replace(RESOURCE, id="other"),
        replace(RESOURCE, kind=ResourceKind.TOKENIZER),
        replace(RESOURCE, nonce_prefix=b"another!"),
    ],
    ids=["id", "kind", "nonce prefix"],
)
def test_a_resource_is_not_another(tmp_path: Path, taken_for: SealedResource) -> None:
    with pytest.raises(CoreError, match="chunk 0 doesn't authenticate"):
        opened(tmp_path / "file", taken_for, STORED)


@pytest.mark.clause("CORE-8")
def test_another_sealing_under_the_same_key_is_not_what_was_signed(tmp_path: Path) -> None:
    _, stored = seal("content", ResourceKind.WEIGHTS, CONTENT[::-1])
    with pytest.raises(CoreError, match="chunk 0 is not what was signed"):
        opened(tmp_path / "file", RESOURCE, stored)


def test_the_key_id_depends_on_the_key_and_does_not_hold_it() -> None:
    assert key_id(CORE_KEY) != key_id(bytes(32))
    assert CORE_KEY not in key_id(CORE_KEY)


@pytest.mark.parametrize(
    "content",
    [CORE_KEY, CORE_KEY.hex().encode(), CORE_KEY.hex().upper().encode() + b"\n", b" " * 3
     + CORE_KEY.hex().encode() + b"\r\n"],
    ids=["raw", "hex", "HEX", "spaced"],
)  # fmt: skip
def test_key_files_are_raw_or_hexadecimal(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    assert read_core_key(path) == CORE_KEY


@pytest.mark.parametrize(
    "content",
    [b"", CORE_KEY[:-1], CORE_KEY + b"\0", b"x" * 64, b"\xc3\xa4" * 32, b"ab " * 20 + b"abab",
     CORE_KEY.hex().encode() * 100],
)  # fmt: skip
def test_other_key_files_are_refused_without_repeating_them(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(
        CoreError, match=r"key: holds no core key. Give a file of 32 bytes"
    ) as caught:
        read_core_key(path)
    assert CORE_KEY.hex() not in str(caught.value)


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CoreError, match=r"nokey: is missing"):
        read_core_key(tmp_path / "nokey")
