"""Packing moves bits and changes none: every layout against a naive reader of the same page."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.runtime import manifest
from helios.runtime.manifest import Packing
from helios.runtime.reference import unpack as reference
from ignition.capture import handles
from ignition.preparation import packing
from ignition.preparation.errors import CheckpointError
from ignition.preparation.packing import CODE_ROWS, Storage, code_rows_nbytes, packed_nbytes
from ignition.preparation.stored_matrix import (
    StoredMatrix,
    concatenate,
    interleave_groups,
    interleave_tiles,
)

from .blocks import random_matrix
from .tiles import unpack

STORAGES = [storage for storage in Storage if storage not in CODE_ROWS]
BLOCKED = [Storage.Q8_0, Storage.Q4_0, Storage.Q4_1, Storage.Q6_K]


def _same_bits(left: np.ndarray, right: np.ndarray) -> bool:
    """Equal bit for bit, except that zeros may differ in sign (a padded code times d = 0)."""
    return left.shape == right.shape and bool(
        np.all((left.view(np.uint32) == right.view(np.uint32)) | ((left == 0) & (right == 0)))
    )


@pytest.mark.parametrize("storage", STORAGES)
@settings(max_examples=20, deadline=None)
@given(outputs=st.integers(1, 40), blocks=st.integers(1, 2), seed=st.integers(0, 2**32 - 1))
def test_packed_matrix_reads_back_as_stored(
    storage: Storage, outputs: int, blocks: int, seed: int
) -> None:
    width = blocks * max(storage.width_multiple, 6 if storage.block_elements == 1 else 1)
    matrix = random_matrix(storage, outputs, width, seed)
    packed = matrix.pack()
    assert packed.shape == (outputs, width)
    assert packed.nbytes == packed_nbytes(storage, outputs, width)
    values = unpack(packed.packing, packed.shape, packed.data.tobytes())
    assert _same_bits(values[:outputs], matrix.dequantise())
    assert not values[outputs:].any()


@pytest.mark.parametrize("storage", STORAGES)
def test_long_matrices_pack_as_their_parts_do(storage: Storage) -> None:
    """Several passes, and a last tile that is partly padding."""
    outputs = packing._PASS_TILES * 16 * 2 + 5
    matrix = random_matrix(storage, outputs, 256, seed=3)
    packed = matrix.pack()
    # A tile's bytes depend on its rows alone, so each plane is the parts' planes end to end.
    tiles = -(-outputs // 16)
    whole = [plane.reshape(tiles, -1) for plane in _planes(matrix, packed.data)]
    for first in (0, packing._PASS_TILES - 1, packing._PASS_TILES, tiles - 1):
        rows = matrix.rows(range(first * 16, min(outputs, first * 16 + 16)))
        for plane, part in zip(whole, _planes(rows, rows.pack().data), strict=True):
            assert np.array_equal(plane[first], part)


def _planes(matrix: StoredMatrix, data: np.ndarray) -> list[np.ndarray]:
    """Splits packed bytes into the planes of docs/kernels.md by their sizes."""
    tiles, blocks = -(-matrix.shape[0] // 16), matrix.shape[1] // 32
    sizes = {
        Storage.Q8_0: (512, 32),
        Storage.Q4_0: (256, 32),
        Storage.Q4_1: (256, 32, 32),
        Storage.Q6_K: (512, 32, 32),
    }.get(matrix.storage)
    if sizes is None:
        return [data]
    ends = np.cumsum([size * tiles * blocks for size in sizes])
    assert ends[-1] == data.size
    return np.split(data, ends[:-1])


@pytest.mark.parametrize("storage", [*BLOCKED, Storage.F16, Storage.BF16])
def test_dequantised_values_are_those_of_gguf(storage: Storage) -> None:
    matrix = random_matrix(storage, 7, 512, seed=11)
    expected = dequantize(matrix.row_bytes, GGMLQuantizationType[storage.value])
    assert _same_bits(matrix.dequantise(), expected.reshape(7, 512))


@pytest.mark.parametrize("storage", STORAGES)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_reordered_rows_carry_their_values(storage: Storage, data: st.DataObject) -> None:
    matrix = random_matrix(storage, 9, 256, seed=5)
    order = data.draw(st.permutations(range(9)))
    moved = matrix.rows(order)
    assert np.array_equal(moved.row_bytes, matrix.row_bytes[order])
    assert _same_bits(moved.dequantise(), matrix.dequantise()[order])
    assert np.array_equal(moved.rows(np.argsort(order)).row_bytes, matrix.row_bytes)


@pytest.mark.parametrize("storage", STORAGES)
def test_joined_rows_lie_below_each_other(storage: Storage) -> None:
    parts = [random_matrix(storage, n, 256, seed=n) for n in (3, 1, 4)]
    joined = concatenate(parts)
    assert joined.shape == (8, 256)
    assert _same_bits(joined.dequantise(), np.concatenate([p.dequantise() for p in parts]))


@pytest.mark.parametrize("storage", STORAGES)
def test_interleaving_alternates_tiles_of_gate_and_up(storage: Storage) -> None:
    gate, up = (random_matrix(storage, 48, 256, seed=s) for s in (1, 2))
    values = interleave_tiles(gate, up).dequantise()
    for tile in range(3):
        rows = slice(16 * tile, 16 * tile + 16)
        assert _same_bits(values[32 * tile : 32 * tile + 16], gate.dequantise()[rows])
        assert _same_bits(values[32 * tile + 16 : 32 * tile + 32], up.dequantise()[rows])


def test_interleaving_alternates_groups_of_gate_and_up_where_rows_are_kept() -> None:
    gate, up = (random_matrix(Storage.BF16, 24, 32, seed=s) for s in (1, 2))
    values = interleave_groups(gate, up).dequantise()
    for group in range(3):
        rows = slice(8 * group, 8 * group + 8)
        assert _same_bits(values[16 * group : 16 * group + 8], gate.dequantise()[rows])
        assert _same_bits(values[16 * group + 8 : 16 * group + 16], up.dequantise()[rows])
    with pytest.raises(CheckpointError, match="multiple of 8"):
        interleave_groups(gate.rows(range(20)), up.rows(range(20)))


def test_bf16_rows_lie_as_they_are() -> None:
    matrix = random_matrix(Storage.BF16, 19, 40, seed=3)
    packed = matrix.rows(range(18, -1, -1)).pack_as_rows()
    assert (packed.packing, packed.shape) == (Packing.ROWS_BF16, (19, 40))
    found = reference.unpack(packed.data, packed.packing, 19, 40)
    assert _same_bits(found, matrix.dequantise()[::-1])


@pytest.mark.parametrize("storage", CODE_ROWS)
@settings(max_examples=40, deadline=None)
@given(outputs=st.integers(1, 40), sixteens=st.integers(1, 20), seed=st.integers(0, 2**32 - 1))
def test_codes_and_scales_read_back_as_stored(
    storage: Storage, outputs: int, sixteens: int, seed: int
) -> None:
    width = 16 * sixteens
    matrix = random_matrix(storage, outputs, width, seed)
    packed = matrix.pack_as_rows()
    assert (packed.packing, packed.shape) == (storage.packing, (outputs, width))
    # The whole is rows of codes, as a tensor map over it has to have them.
    assert packed.nbytes == code_rows_nbytes(storage, outputs, width)
    assert packed.nbytes == manifest.packed_nbytes(Packing(storage.packing), outputs, width)
    assert packed.nbytes == handles.packed_nbytes(storage.packing, outputs, width)
    assert packed.nbytes % width == 0
    assert packed.data[: outputs * width].tobytes() == matrix.row_bytes[:, :width].tobytes()
    found = reference.unpack(packed.data, packed.packing, outputs, width)
    assert _same_bits(found, matrix.dequantise())


@pytest.mark.parametrize("storage", CODE_ROWS)
def test_rows_of_codes_keep_their_scales_where_rows_move(storage: Storage) -> None:
    gate, up = (random_matrix(storage, 16, 208, seed=s) for s in (1, 2))
    both = interleave_groups(gate, up)
    rows = np.concatenate([m.dequantise().reshape(2, 1, 8, 208) for m in (gate, up)], axis=1)
    assert _same_bits(both.dequantise(), rows.reshape(32, 208))
    packed = concatenate([up, gate.rows([3, 1])]).pack_as_rows()
    found = reference.unpack(packed.data, packed.packing, 18, 208)
    assert _same_bits(found[16:], gate.dequantise()[[3, 1]])


@pytest.mark.parametrize(("storage", "width"), [(Storage.F16, 32), (Storage.BF16, 36)])
def test_other_matrices_do_not_lie_row_by_row(storage: Storage, width: int) -> None:
    with pytest.raises(CheckpointError, match=f"{width} wide can't lie row by row"):
        random_matrix(storage, 16, width, seed=0).pack_as_rows()


def test_matrices_of_different_form_are_not_joined() -> None:
    q4 = random_matrix(Storage.Q4_1, 16, 256, seed=0)
    with pytest.raises(CheckpointError, match=r"Q4_1 width 256, Q8_0 width 256"):
        concatenate([q4, random_matrix(Storage.Q8_0, 16, 256, seed=0)])
    with pytest.raises(CheckpointError, match="Q4_1 width 256, Q4_1 width 32"):
        interleave_tiles(q4, random_matrix(Storage.Q4_1, 16, 32, seed=0))
    with pytest.raises(CheckpointError, match="none"):
        concatenate([])


def test_interleaving_needs_whole_tiles() -> None:
    part = random_matrix(Storage.F32, 24, 8, seed=0)
    with pytest.raises(CheckpointError, match="multiple of 16"):
        interleave_tiles(part, part)
    with pytest.raises(CheckpointError, match="16 rows and up has 32"):
        interleave_tiles(
            random_matrix(Storage.F32, 16, 8, seed=0), random_matrix(Storage.F32, 32, 8, seed=0)
        )


def test_a_matrix_must_have_the_bytes_of_its_shape() -> None:
    with pytest.raises(CheckpointError, match="no multiple of 32"):
        StoredMatrix(Storage.Q8_0, (2, 33), np.zeros((2, 34), np.uint8))
    with pytest.raises(CheckpointError, match="no multiple of 2"):
        StoredMatrix(Storage.BF16, (2, 3), np.zeros((2, 6), np.uint8))
    with pytest.raises(CheckpointError, match="needs bytes of shape"):
        StoredMatrix(Storage.Q8_0, (2, 32), np.zeros((1, 34), np.uint8))
