"""`StoredMatrix`: a weight matrix as its checkpoint stores it, row by row.

Whole rows may be reordered, joined and interleaved without touching a value, since no storage
shares anything between rows. Values change only in `quantisation`. Checkpoint readers make these;
Ignition's recipes combine and pack them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from helios.kernels import e4m3
from helios.kernels.catalogue import ROW_GROUP, ROWS_Q8_BLOCK, TILE_OUTPUTS
from helios.schema import execution_pb2
from ignition.preparation.errors import CheckpointError
from ignition.preparation.packing import (
    BLOCK,
    CODE_ROWS,
    Bytes,
    PackedMatrix,
    Storage,
    pack_code_rows,
    pack_rows,
    q6_k_codes,
)

Floats = NDArray[np.float32]

_PASS_NBYTES: Final = 4 << 20
# Of each storage: where a block's floating-point numbers lie, and the exponent bits that are all
# set in what isn't finite.
_FLOATS: Final[dict[Storage, tuple[slice, str, int]]] = {
    Storage.F32: (slice(0, 4), "<u4", 0x7F800000),
    Storage.F16: (slice(0, 2), "<u2", 0x7C00),
    Storage.BF16: (slice(0, 2), "<u2", 0x7F80),
    Storage.Q8_0: (slice(0, 2), "<u2", 0x7C00),
    Storage.Q4_0: (slice(0, 2), "<u2", 0x7C00),
    Storage.Q4_1: (slice(0, 4), "<u2", 0x7C00),
    Storage.Q6_K: (slice(208, 210), "<u2", 0x7C00),
}


@dataclass(frozen=True, eq=False)
class StoredMatrix:
    """A matrix of shape [N, K]; `row_bytes` is `u8 [N, storage.row_nbytes(K)]`.

    `row_bytes` may be a read-only view of a mapped file; nothing here writes to it.
    """

    storage: Storage
    shape: tuple[int, int]
    row_bytes: Bytes

    def __post_init__(self) -> None:
        outputs, width = self.shape
        if width % self.storage.width_multiple:
            raise CheckpointError(
                f"a {self.storage.value} matrix is {width} wide, which is no multiple of "
                f"{self.storage.width_multiple}",
                remedy="Store it as F32 or F16",
            )
        expected = (outputs, self.storage.row_nbytes(width))
        if self.row_bytes.shape != expected or self.row_bytes.dtype != np.uint8:
            raise CheckpointError(
                f"a {self.storage.value} matrix of shape {self.shape} needs bytes of shape "
                f"{expected}, got {self.row_bytes.dtype} {self.row_bytes.shape}"
            )

    @classmethod
    def from_elements(cls, storage: Storage, elements: NDArray[np.generic]) -> StoredMatrix:
        """Wraps [N, K] elements: float32 for F32, float16 for F16, bf16 as uint16 for BF16."""
        element = {Storage.F32: "<f4", Storage.F16: "<f2", Storage.BF16: "<u2"}[storage]
        outputs, width = elements.shape
        rows = np.ascontiguousarray(elements, element).view(np.uint8)
        return cls(storage, (outputs, width), rows.reshape(outputs, -1))

    @property
    def nbytes(self) -> int:
        """Bytes of the stored rows."""
        return self.row_bytes.nbytes

    def rows(self, order: ArrayLike) -> StoredMatrix:
        """The rows that `order` lists, in its order."""
        rows = self.row_bytes[np.asarray(order, np.intp)]
        return StoredMatrix(self.storage, (rows.shape[0], self.shape[1]), rows)

    def dequantise(self) -> Floats:
        """The exact values that the kernels' formulas give, in float32: `f32 [N, K]`."""
        outputs, width = self.shape
        if self.storage in CODE_ROWS:
            return _dequantise_code_rows(self.storage, self.row_bytes, width)
        blocks = self.row_bytes.reshape(outputs, -1, self.storage.block_nbytes)
        return _dequantise_blocks(self.storage, blocks).reshape(outputs, width)

    def is_finite(self) -> bool:
        """Whether every value is a finite number: of plain elements each is looked at, of blocks
        and rows of codes the scales."""
        if self.storage in CODE_ROWS:
            scales = np.ascontiguousarray(self.row_bytes[:, self.shape[1] :]).view("<f4")
            return bool(np.isfinite(scales).all())
        at, kind, exponent = _FLOATS[self.storage]
        count = max(1, _PASS_NBYTES // max(1, self.row_bytes.shape[1]))
        for first in range(0, self.shape[0], count):
            rows = np.ascontiguousarray(self.row_bytes[first : first + count])
            blocks = rows.reshape(-1, self.storage.block_nbytes)[:, at]
            bits = np.ascontiguousarray(blocks).view(kind)
            if ((bits & exponent) == exponent).any():
                return False
        return True

    def pack(self) -> PackedMatrix:
        """The matrix in the layout of its storage's packing."""
        data = pack_rows(self.storage, self.row_bytes, self.shape[1])
        return PackedMatrix(self.storage.packing, self.shape, data)

    def pack_as_rows(self) -> PackedMatrix:
        """The matrix row by row, in a storage that has such a packing: BF16 or codes.

        Raises CheckpointError for another storage, or rows that aren't a multiple of 16 bytes.
        """
        if self.storage in CODE_ROWS:
            data = pack_code_rows(self.storage, self.row_bytes, self.shape[1])
            return PackedMatrix(self.storage.packing, self.shape, data)
        if self.storage is not Storage.BF16 or self.shape[1] % ROW_GROUP:
            raise CheckpointError(
                f"a {self.storage.value} matrix {self.shape[1]} wide can't lie row by row",
                remedy=f"Store it as bf16, with a width that is a multiple of {ROW_GROUP}",
            )
        data = np.ascontiguousarray(self.row_bytes).reshape(-1)
        return PackedMatrix(execution_pb2.PACKING_ROWS_BF16, self.shape, data)


def concatenate(matrices: Sequence[StoredMatrix]) -> StoredMatrix:
    """Puts rows below rows: query, key and value become one matrix.

    Raises CheckpointError if storages or widths differ.
    """
    storage, width = _shared_form(matrices)
    rows = np.concatenate([matrix.row_bytes for matrix in matrices])
    return StoredMatrix(storage, (rows.shape[0], width), rows)


def interleave_tiles(gate: StoredMatrix, up: StoredMatrix) -> StoredMatrix:
    """Alternates tiles of 16 rows (gate tile, up tile, …), as `linear_silu_mul` reads them.

    Raises CheckpointError if the two differ in form or their rows aren't whole tiles.
    """
    return _interleave(gate, up, TILE_OUTPUTS)


def interleave_groups(gate: StoredMatrix, up: StoredMatrix) -> StoredMatrix:
    """As `interleave_tiles`, in the groups of 8 rows of a matrix that lies row by row."""
    return _interleave(gate, up, ROW_GROUP)


def _interleave(gate: StoredMatrix, up: StoredMatrix, together: int) -> StoredMatrix:
    storage, width = _shared_form([gate, up])
    outputs = gate.shape[0]
    if up.shape[0] != outputs or outputs % together:
        raise CheckpointError(
            f"gate has {outputs} rows and up has {up.shape[0]}; both must have the same "
            f"multiple of {together}"
        )
    groups = [m.row_bytes.reshape(outputs // together, 1, together, -1) for m in (gate, up)]
    rows = np.concatenate(groups, axis=1).reshape(2 * outputs, -1)
    return StoredMatrix(storage, (2 * outputs, width), rows)


def _shared_form(matrices: Sequence[StoredMatrix]) -> tuple[Storage, int]:
    forms = {(matrix.storage, matrix.shape[1]) for matrix in matrices}
    if len(forms) != 1:
        listed = ", ".join(sorted(f"{storage.value} width {width}" for storage, width in forms))
        raise CheckpointError(
            f"matrices to be joined must have one storage and one width, got {listed or 'none'}",
            remedy="Keep them apart, or choose a weight storage other than as-stored",
        )
    return forms.pop()


def bf16_to_f32(elements: NDArray[np.uint16]) -> Floats:
    """Widens bf16 bit patterns, exactly."""
    return (elements.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _dequantise_code_rows(storage: Storage, rows: Bytes, width: int) -> Floats:
    """`u8 [N, row_nbytes]` to `f32 [N, width]`."""
    codes = rows[:, :width]
    scales = np.ascontiguousarray(rows[:, width:]).view("<f4").astype(np.float32)
    if storage is Storage.F8_E4M3:
        return scales * e4m3.VALUES[codes]
    return scales.repeat(ROWS_Q8_BLOCK, axis=1)[:, :width] * codes.view(np.int8).astype(np.float32)


def _dequantise_blocks(storage: Storage, blocks: Bytes) -> Floats:
    """`u8 [N, blocks, block_nbytes]` to `f32 [N, blocks, block_elements]`."""
    if storage is Storage.F32:
        return blocks.view("<f4").astype(np.float32)
    if storage is Storage.F16:
        return blocks.view("<f2").astype(np.float32)
    if storage is Storage.BF16:
        return bf16_to_f32(blocks.view("<u2"))
    if storage is Storage.Q8_0:
        return _f16(blocks[..., :2]) * blocks[..., 2:].view(np.int8).astype(np.float32)
    if storage is Storage.Q4_0:
        return _f16(blocks[..., :2]) * (_nibbles(blocks[..., 2:]) - np.float32(8))
    if storage is Storage.Q4_1:
        return _f16(blocks[..., :2]) * _nibbles(blocks[..., 4:]) + _f16(blocks[..., 2:4])
    assert storage is Storage.Q6_K
    scales = _f16(blocks[..., 208:210]) * blocks[..., 192:208].view(np.int8).astype(np.float32)
    codes = q6_k_codes(blocks).astype(np.float32) - np.float32(32)
    halves = codes.reshape(*codes.shape[:-1], -1, BLOCK // 2)
    return (scales[..., None] * halves).reshape(codes.shape)


def _f16(pairs: Bytes) -> Floats:
    """Float16 values stored as the last axis' two bytes; that axis becomes one long."""
    return pairs.view("<f2").astype(np.float32)


def _nibbles(codes: Bytes) -> Floats:
    return np.concatenate([codes & np.uint8(0x0F), codes >> np.uint8(4)], axis=-1).astype(
        np.float32
    )
