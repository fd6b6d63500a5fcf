"""Declared weights against their bytes: offsets, storage choices, mixed storages, the catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from helios.runtime.reference.unpack import unpack
from helios.schema import execution_pb2 as pb
from ignition.capture.recorder import Recorder
from ignition.capture.target import CPU, TARGETS, Target
from ignition.preparation.errors import CheckpointError
from ignition.preparation.packing import Storage
from ignition.preparation.quantisation import WeightStorage, store_as
from ignition.preparation.stored_matrix import StoredMatrix, concatenate
from ignition.preparation.weights import WeightSet
from tests.ignition.conftest import Captured

# What catalogs say of matrices that lie row by row.
STORED_AS = {
    pb.PACKING_ROWS_BF16: "BF16",
    pb.PACKING_ROWS_Q8: "Q8_128",
    pb.PACKING_ROWS_FP8: "F8_E4M3",
}


class Matrices:
    """As much of a checkpoint as weights ask for; counts how often each matrix is read."""

    def __init__(self, matrices: Mapping[str, StoredMatrix]) -> None:
        self._matrices = matrices
        self.reads: list[str] = []

    def matrix(self, name: str) -> StoredMatrix:
        self.reads.append(name)
        return self._matrices[name]

    def vector(self, name: str) -> NDArray[np.float32]:
        return np.array({"bias_a": [1, 2], "bias_b": [3], "bias_nan": [np.nan]}[name], np.float32)


def stored(choice: WeightStorage, outputs: int, width: int) -> StoredMatrix:
    values = np.random.default_rng(outputs * width).standard_normal((outputs, width))
    elements = values.astype(np.float32)
    return store_as(StoredMatrix.from_elements(Storage.F32, elements), choice)


def weight_set(
    choice: WeightStorage, target: Target = CPU, **matrices: StoredMatrix
) -> tuple[WeightSet, Matrices]:
    checkpoint = Matrices(matrices)
    buffers = Recorder(target, weight_resource="weights").buffers
    return WeightSet(buffers, checkpoint, choice, target), checkpoint  # type: ignore[arg-type]


def content(weights: WeightSet) -> bytes:
    return b"".join(weights.content())


def test_bytes_lie_at_the_declared_offsets() -> None:
    a, b = stored(WeightStorage.INT8, 5, 64), stored(WeightStorage.INT8, 20, 64)
    weights, _ = weight_set(WeightStorage.AS_STORED, a=a, b=b)
    bias = weights.vector("bias", ["bias_a", "bias_b"])
    joined = weights.matrix("ab", ["a", "b"], concatenate)
    table = weights.table("table", np.array([0.5], np.float32))
    written = content(weights)
    assert len(written) == weights.nbytes
    assert (bias.offset, joined.buffer.offset % 64, table.offset % 64) == (0, 0, 0)
    assert np.frombuffer(written[:12], np.float32).tolist() == [1, 2, 3]
    packed = concatenate([a, b]).pack().data.tobytes()
    assert written[joined.buffer.offset :][: joined.buffer.nbytes] == packed
    assert np.frombuffer(written[table.offset :], np.float32).tolist() == [0.5]


def test_matrices_are_not_kept_between_declaration_and_packing() -> None:
    weights, checkpoint = weight_set(WeightStorage.BF16, a=stored(WeightStorage.BF16, 16, 32))
    weights.matrix("a", ["a"], concatenate)
    assert checkpoint.reads == ["a"]
    content(weights)
    assert checkpoint.reads == ["a", "a"]


@pytest.mark.parametrize(
    ("choice", "packing"),
    [
        (WeightStorage.AS_STORED, pb.PACKING_TILE16_F32),
        (WeightStorage.BF16, pb.PACKING_TILE16_BF16),
        (WeightStorage.INT8, pb.PACKING_TILE16_Q8_0),
        (WeightStorage.INT4, pb.PACKING_TILE16_Q4_PAIRS),
    ],
)
def test_the_choice_decides_the_packing(choice: WeightStorage, packing: int) -> None:
    weights, _ = weight_set(choice, a=stored(WeightStorage.AS_STORED, 16, 64))
    matrix = weights.matrix("a", ["a"], concatenate)
    assert matrix.packing == packing
    assert len(content(weights)) == matrix.buffer.nbytes
    assert weights.notes == []


@pytest.mark.parametrize(
    ("width", "run", "packing"),
    [
        (64, None, pb.PACKING_TILE16_Q4_PAIRS),
        (192, 64, pb.PACKING_TILE16_Q4_PAIRS),
        (192, 32, pb.PACKING_TILE16_Q4_1),
        (96, None, pb.PACKING_TILE16_Q4_1),
    ],
)
def test_4_bit_blocks_lie_in_pairs_where_rows_are_written_in_pairs(
    width: int, run: int | None, packing: int
) -> None:
    weights, _ = weight_set(WeightStorage.AS_STORED, a=stored(WeightStorage.INT4, 21, width))
    matrix = weights.matrix("a", ["a"], concatenate, run=run)
    assert matrix.packing == packing
    assert len(content(weights)) == matrix.buffer.nbytes
    assert weights.notes == []


def test_vocabulary_matrices_keep_blocks_on_their_own() -> None:
    weights, _ = weight_set(WeightStorage.AS_STORED, a=stored(WeightStorage.INT4, 21, 64))
    assert weights.vocabulary_matrix("a").packing == pb.PACKING_TILE16_Q4_1


def test_different_storages_join_with_their_exact_values() -> None:
    """A GGUF may keep values in more bits than queries and keys."""
    query, value = stored(WeightStorage.INT4, 16, 64), stored(WeightStorage.INT8, 16, 64)
    weights, _ = weight_set(WeightStorage.AS_STORED, query=query, value=value)
    matrix = weights.matrix("qv", ["query", "value"], concatenate)
    assert matrix.packing == pb.PACKING_TILE16_F32
    assert not matrix.is_quantised
    (note,) = weights.notes
    assert "qv joins Q4_1, Q8_0: kept as F32" in note
    # [tile][k][output of the tile] back to rows.
    tiles = np.frombuffer(content(weights), np.float32).reshape(2, 64, 16)
    rows = tiles.transpose(0, 2, 1).reshape(32, 64)
    np.testing.assert_array_equal(rows, np.concatenate([query.dequantise(), value.dequantise()]))


@pytest.mark.parametrize(
    ("choice", "packing", "of_vocabulary"),
    [
        (WeightStorage.AS_STORED, pb.PACKING_ROWS_BF16, pb.PACKING_ROWS_BF16),
        (WeightStorage.BF16, pb.PACKING_ROWS_BF16, pb.PACKING_ROWS_BF16),
        (WeightStorage.INT8, pb.PACKING_ROWS_Q8, pb.PACKING_ROWS_Q8),
        (WeightStorage.FP8, pb.PACKING_ROWS_FP8, pb.PACKING_ROWS_Q8),
    ],
)
def test_rows_of_a_gpu_are_bf16_or_codes(
    choice: WeightStorage, packing: int, of_vocabulary: int
) -> None:
    parts = {name: stored(WeightStorage.BF16, 24, 208) for name in ("gate", "up", "head")}
    weights, _ = weight_set(choice, TARGETS["cuda:sm_90"], **parts)
    joined, head = weights.gated_matrix("joined", "gate", "up"), weights.vocabulary_matrix("head")
    assert (joined.packing, head.packing) == (packing, of_vocabulary)
    assert weights.notes == []
    assert {view.tensor: view.storage for view in weights.catalog().views} == {
        "gate": STORED_AS[packing], "up": STORED_AS[packing], "head": STORED_AS[of_vocabulary],
    }  # fmt: skip
    raw = np.frombuffer(content(weights), np.uint8)[joined.buffer.offset :][: joined.buffer.nbytes]
    found = unpack(raw, packing, 48, 208).reshape(3, 2, 8, 208)
    exact = [parts[name].dequantise().reshape(3, 8, 208) for name in ("gate", "up")]
    limit = {pb.PACKING_ROWS_BF16: 0, pb.PACKING_ROWS_Q8: 0.007, pb.PACKING_ROWS_FP8: 0.03}
    for side in (0, 1):
        error = np.sqrt(np.square(found[:, side] - exact[side]).mean())
        assert error <= limit[packing]


@pytest.mark.parametrize("choice", [WeightStorage.INT8, WeightStorage.FP8])
def test_rows_of_codes_that_copies_don_t_fit_are_kept_as_bf16(choice: WeightStorage) -> None:
    weights, _ = weight_set(
        choice, TARGETS["cuda:sm_90"], a=stored(WeightStorage.AS_STORED, 16, 40)
    )
    assert weights.matrix("a", ["a"], concatenate, run=20).packing == pb.PACKING_ROWS_BF16
    (note,) = weights.notes
    assert note == f"a is 40 wide, no multiple of 16: kept as bf16 instead of {choice.value}"


@pytest.mark.parametrize("choice", [WeightStorage.AS_STORED, WeightStorage.INT8])
def test_widths_that_no_gpu_copies_are_refused_where_they_are_declared(
    choice: WeightStorage,
) -> None:
    """By the matrix's name, before anything is compiled for it."""
    matrices = {"a": stored(WeightStorage.AS_STORED, 16, 100)}
    weights, _ = weight_set(choice, TARGETS["cuda:sm_90"], **matrices)
    with pytest.raises(CheckpointError, match=r"^a: rows of 100 elements .*multiples of 8.* cpu$"):
        weights.matrix("a", ["a"], concatenate)
    weights, _ = weight_set(WeightStorage.AS_STORED, **matrices)
    assert weights.matrix("a", ["a"], concatenate).width == 100


@pytest.mark.parametrize("choice", [WeightStorage.INT8, WeightStorage.INT4])
def test_widths_that_blocks_don_t_divide_are_kept_as_bf16(choice: WeightStorage) -> None:
    weights, _ = weight_set(choice, a=stored(WeightStorage.AS_STORED, 16, 48))
    matrix = weights.matrix("a", ["a"], concatenate)
    assert matrix.packing == pb.PACKING_TILE16_BF16
    (note,) = weights.notes
    assert note.startswith("a is 48 wide, no multiple of 32: kept as bf16 instead of")
    assert len(content(weights)) == matrix.buffer.nbytes


@pytest.mark.parametrize(
    ("storage", "at"),
    [
        (Storage.F32, 4),
        (Storage.F16, 2),
        (Storage.BF16, 2),
        (Storage.Q8_0, 34),
        (Storage.Q4_0, 18),
        (Storage.Q4_1, 20),
        (Storage.Q4_1, 22),
        (Storage.Q6_K, 418),
    ],
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("choice", [s for s in WeightStorage if s is not WeightStorage.FP8])
def test_values_that_are_not_finite_are_refused_by_name(
    storage: Storage, at: int, value: float, choice: WeightStorage
) -> None:
    width = 512
    rows = np.zeros((3, storage.row_nbytes(width)), np.uint8)
    bits = {
        Storage.F32: np.array([value], "<f4"),
        Storage.BF16: np.array([value], "<f4").view("<u2")[1:],
    }.get(storage, np.array([value], "<f2"))
    damaged = bits.view(np.uint8)
    rows[2, at : at + damaged.size] = damaged
    matrix = StoredMatrix(storage, (3, width), rows)
    good = StoredMatrix(storage, (3, width), np.zeros_like(rows))
    weights, _ = weight_set(choice, a=good, b=matrix)
    weights.matrix("ab", ["a", "b"], concatenate)
    with pytest.raises(CheckpointError, match="tensor `b`: holds a value that isn't a finite"):
        content(weights)
    assert good.is_finite()


def test_values_that_overflow_the_chosen_storage_are_refused_by_name() -> None:
    largest = np.full((16, 32), np.finfo(np.float32).max, np.float32)
    weights, _ = weight_set(WeightStorage.BF16, a=StoredMatrix.from_elements(Storage.F32, largest))
    weights.matrix("a", ["a"], concatenate)
    with pytest.raises(CheckpointError, match="tensor `a`: holds a value too large for BF16"):
        content(weights)


def test_vectors_must_be_finite() -> None:
    weights, _ = weight_set(WeightStorage.BF16)
    with pytest.raises(CheckpointError, match="tensor `bias_nan`: holds a value that isn't"):
        weights.vector("bias", ["bias_a", "bias_nan"])


@pytest.mark.parametrize(
    ("choice", "packing", "kept"),
    [
        (WeightStorage.INT8, pb.PACKING_TILE16_BF16, "kept as bf16 instead of Q8_0"),
        (WeightStorage.INT4, pb.PACKING_TILE16_BF16, "kept as bf16 instead of Q4_1"),
        (WeightStorage.AS_STORED, pb.PACKING_TILE16_F32, "kept as F32 instead of Q8_0"),
    ],
)
def test_rows_written_in_runs_that_blocks_don_t_divide_are_not_read_quantised(
    choice: WeightStorage, packing: int, kept: str
) -> None:
    weights, _ = weight_set(choice, a=stored(WeightStorage.INT8, 16, 96))
    matrix = weights.matrix("a", ["a"], concatenate, run=48)
    assert matrix.packing == packing
    (note,) = weights.notes
    assert note == f"a reads rows written 48 elements at a time, no multiple of 32: {kept}"
    assert len(content(weights)) == matrix.buffer.nbytes
    whole, _ = weight_set(choice, a=stored(WeightStorage.INT8, 16, 96))
    assert whole.matrix("a", ["a"], concatenate, run=32).is_quantised
    assert whole.notes == []


def test_the_catalog_names_every_tensor_of_the_checkpoint(
    captured: Callable[..., Captured],
) -> None:
    found = captured("qwen2", WeightStorage.INT8)
    catalog = found.weights.catalog()
    views = {view.tensor: (view.buffer, view.storage) for view in catalog.views}
    assert catalog.version == 1
    assert views["layers.1.key"] == ("layers.1.qkv", "Q8_0")
    assert views["layers.0.value_bias"] == ("layers.0.qkv_bias", "F32")
    assert views["layers.0.up"] == ("layers.0.gate_up", "Q8_0")
    assert views["embedding"] == ("embedding", "Q8_0")
    # 2 layers of 7 matrices, 3 biases and 2 norms; the embedding and the final norm.
    assert len(catalog.views) == len(views) == 2 * 12 + 2
    buffers = {buffer.name for buffer in found.manifest.buffers}
    assert {buffer for buffer, _ in views.values()} <= buffers
