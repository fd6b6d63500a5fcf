"""Changes how a weight matrix is stored: the choices `as-stored`, `bf16`, `int8`, `int4`, `fp8`.

int8 makes Q8_0 blocks (d = largest magnitude / 127), or where matrices lie row by row blocks of 128
with an f32 scale; fp8 makes e4m3 codes with a scale a row (largest magnitude / 448); int4 makes
Q4_1 blocks (w = d q + m) whose d and m are fitted by least squares. Works on a bounded number of
rows at a time. Recipes call `store_as`; nothing else changes the values of a weight.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from helios.kernels import e4m3
from helios.kernels.catalogue import ROWS_Q8_BLOCK
from ignition.preparation.errors import CheckpointError
from ignition.preparation.packing import BLOCK, Bytes, Storage
from ignition.preparation.stored_matrix import Floats, StoredMatrix

# Elements quantised at a time: bounds the temporary arrays to some tens of MiB.
_PASS_ELEMENTS: Final = 1 << 20
_INT4_LEVELS: Final = 15
# Ranges tried for an int4 block, as shares of the block's own: clipping the outermost values often
# costs less than spreading 16 levels over them.
_INT4_SHARES: Final = (1.0, 0.95, 0.9, 0.85, 0.8)
_INT4_REFINEMENTS: Final = 2


class WeightStorage(Enum):
    """How a core keeps its weight matrices."""

    AS_STORED = "as-stored"
    BF16 = "bf16"
    INT8 = "int8"
    INT4 = "int4"
    FP8 = "fp8"


def store_as(matrix: StoredMatrix, choice: WeightStorage, *, by_rows: bool = False) -> StoredMatrix:
    """The matrix in the storage chosen; itself where that is how it is stored already. `by_rows`:
    it will lie row by row, as CUDA targets have it, else in tiles.

    Raises CheckpointError if its width doesn't fit the storage's blocks or a value isn't finite.
    """
    if choice is WeightStorage.AS_STORED:
        return matrix
    target = storage_of(choice, by_rows=by_rows)
    quantise = _QUANTISERS[target]
    if matrix.storage is target:
        return matrix
    outputs, width = matrix.shape
    if width % target.width_multiple:
        raise CheckpointError(
            f"a matrix {width} wide can't be stored as {choice.value}, whose blocks hold "
            f"{target.width_multiple} elements",
            remedy="Choose another weight storage",
        )
    rows = np.empty((outputs, target.row_nbytes(width)), np.uint8)
    count = max(1, _PASS_ELEMENTS // width)
    for first in range(0, outputs, count):
        part = slice(first, first + count)
        stored = matrix.row_bytes[part]
        values = StoredMatrix(matrix.storage, (stored.shape[0], width), stored).dequantise()
        if not np.isfinite(values).all():
            raise CheckpointError(
                f"rows {first} to {first + stored.shape[0] - 1} hold a value that isn't finite",
                remedy="The checkpoint is damaged; fetch it again",
            )
        rows[part] = quantise(values)
    return StoredMatrix(target, matrix.shape, rows)


def storage_of(choice: WeightStorage, *, by_rows: bool) -> Storage:
    """What a choice other than `as-stored` makes of a matrix; one that `options` lets through where
    matrices lie so."""
    return (_BY_ROWS if by_rows else _IN_TILES)[choice]


def round_to_bf16(values: Floats) -> NDArray[np.uint16]:
    """The nearest bf16 bit patterns, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    # Adding just under half a unit, and the unit's own parity, carries exactly where rounding to
    # nearest even goes up.
    rounded = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16
    quiet = (bits >> 16) | np.uint32(0x40)
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def _bf16_rows(values: Floats) -> Bytes:
    return round_to_bf16(values).astype("<u2").view(np.uint8)


def _int8_rows(values: Floats) -> Bytes:
    """Q8_0 rows: codes are rounded with the d that is stored, after its rounding to f16."""
    outputs, width = values.shape
    x = values.reshape(outputs, width // BLOCK, BLOCK)
    d = _to_f16(np.abs(x).max(axis=-1, keepdims=True) / np.float32(127))
    codes = np.rint(x * _reciprocal(d)).clip(-127, 127).astype(np.int8)
    blocks = np.concatenate([_f16_bytes(d), codes.view(np.uint8)], axis=-1)
    return blocks.reshape(outputs, -1)


def _int4_rows(values: Floats) -> Bytes:
    """Q4_1 rows: of several ranges and their least-squares refinements, the smallest error."""
    outputs, width = values.shape
    x = values.reshape(outputs, width // BLOCK, BLOCK)
    low, high = x.min(axis=-1, keepdims=True), x.max(axis=-1, keepdims=True)
    middle, reach = (low + high) / 2, (high - low) / 2
    best_d = best_m = np.zeros_like(low)
    best_codes = np.zeros_like(x)
    best_error = np.full_like(low, np.inf)
    for share in _INT4_SHARES:
        d = _to_f16(2 * reach * np.float32(share) / _INT4_LEVELS)
        m = _to_f16(middle - reach * np.float32(share))
        for refinement in range(_INT4_REFINEMENTS + 1):
            codes = np.rint((x - m) * _reciprocal(d)).clip(0, _INT4_LEVELS)
            error = np.square(codes * d + m - x).sum(axis=-1, keepdims=True)
            better = error < best_error
            best_d, best_m = np.where(better, d, best_d), np.where(better, m, best_m)
            best_codes = np.where(better, codes, best_codes)
            best_error = np.where(better, error, best_error)
            if refinement < _INT4_REFINEMENTS:
                d, m = _fit_line(codes, x)
    codes = best_codes.astype(np.uint8)
    half = BLOCK // 2
    packed = codes[..., :half] | (codes[..., half:] << np.uint8(4))
    blocks = np.concatenate([_f16_bytes(best_d), _f16_bytes(best_m), packed], axis=-1)
    return blocks.reshape(outputs, -1)


def _fit_line(codes: Floats, x: Floats) -> tuple[Floats, Floats]:
    """Least-squares d and m, rounded to f16, with x ≈ d · codes + m in each block."""
    centre, level = codes.mean(axis=-1, keepdims=True), x.mean(axis=-1, keepdims=True)
    spread = np.square(codes - centre).sum(axis=-1, keepdims=True)
    covariance = ((codes - centre) * (x - level)).sum(axis=-1, keepdims=True)
    d = _to_f16(covariance / np.where(spread > 0, spread, np.float32(1)))
    return d, _to_f16(level - d * centre)


def _to_f16(values: Floats) -> Floats:
    """Rounds to what float16 holds, saturating, and returns it as float32."""
    limit = np.float32(np.finfo(np.float16).max)
    return values.clip(-limit, limit).astype(np.float16).astype(np.float32)


def _f16_bytes(values: Floats) -> Bytes:
    return values.astype("<f2").view(np.uint8)


def _reciprocal(d: Floats) -> Floats:
    """1/d, and 0 where d is 0: such a block's codes are all zero."""
    return np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)


def _code_rows_of_128(values: Floats) -> Bytes:
    """Q8_128 rows. A last block may be shorter."""
    outputs, width = values.shape
    blocks = -(-width // ROWS_Q8_BLOCK)
    x = np.zeros((outputs, blocks * ROWS_Q8_BLOCK), np.float32)
    x[:, :width] = values
    x = x.reshape(outputs, blocks, ROWS_Q8_BLOCK)
    scales = np.abs(x).max(axis=-1) / np.float32(127)
    codes = np.rint(_quotient(x, scales[..., None])).clip(-127, 127).astype(np.int8)
    return _with_scales(codes.reshape(outputs, -1)[:, :width], scales)


def _fp8_rows(values: Floats) -> Bytes:
    """F8_E4M3 rows."""
    scales = np.abs(values).max(axis=-1, keepdims=True) / np.float32(e4m3.LARGEST)
    return _with_scales(e4m3.nearest(_quotient(values, scales)), scales)


def _quotient(x: Floats, scales: Floats) -> Floats:
    """x / scales, and 0 where the scale is 0: there x is, or is next to nothing."""
    scales = np.broadcast_to(scales, x.shape)
    return np.divide(x, scales, out=np.zeros_like(x), where=scales != 0)


def _with_scales(codes: NDArray[np.int8] | Bytes, scales: Floats) -> Bytes:
    planes = [np.ascontiguousarray(codes).view(np.uint8), scales.astype("<f4").view(np.uint8)]
    return np.concatenate(planes, axis=1)


_QUANTISERS: Final[dict[Storage, Callable[[Floats], Bytes]]] = {
    Storage.BF16: _bf16_rows,
    Storage.Q8_0: _int8_rows,
    Storage.Q4_1: _int4_rows,
    Storage.Q8_128: _code_rows_of_128,
    Storage.F8_E4M3: _fp8_rows,
}
_IN_TILES: Final = {
    WeightStorage.BF16: Storage.BF16,
    WeightStorage.INT8: Storage.Q8_0,
    WeightStorage.INT4: Storage.Q4_1,
}
_BY_ROWS: Final = {
    WeightStorage.BF16: Storage.BF16,
    WeightStorage.INT8: Storage.Q8_128,
    WeightStorage.FP8: Storage.F8_E4M3,
}
