"""Typed handles of what a program works on: buffers, rows and their places, activations, matrices.

Data only. The recorder makes buffer handles, recipes pass them around, the op layer wraps them in
the roles that say how a kernel reads their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Final

from helios.kernels.catalogue import (
    Q8_BLOCK,
    Q8_PAIR,
    ROWS_Q8_BLOCK,
    TILE_OUTPUTS,
    ActivationFormat,
)
from helios.schema import execution_pb2 as pb

ELEMENT_NBYTES: Final[dict[pb.DType, int]] = {
    pb.DTYPE_U8: 1,
    pb.DTYPE_I8: 1,
    pb.DTYPE_I32: 4,
    pb.DTYPE_U32: 4,
    pb.DTYPE_I64: 8,
    pb.DTYPE_U64: 8,
    pb.DTYPE_F16: 2,
    pb.DTYPE_BF16: 2,
    pb.DTYPE_F32: 4,
}
FORMAT_DTYPE: Final[dict[ActivationFormat, pb.DType]] = {
    ActivationFormat.F32: pb.DTYPE_F32,
    ActivationFormat.BF16: pb.DTYPE_BF16,
    ActivationFormat.Q8: pb.DTYPE_ACT_Q8,
    ActivationFormat.Q16: pb.DTYPE_ACT_Q16,
    ActivationFormat.Q8_PAIRS: pb.DTYPE_ACT_Q8_PAIRS,
}
_DTYPE_FORMAT: Final = {dtype: form for form, dtype in FORMAT_DTYPE.items()}

# Bytes that 32 consecutive inputs of one output take, over all planes of a packing.
_BLOCK_NBYTES: Final[dict[int, int]] = {
    pb.PACKING_TILE16_F32: 128,
    pb.PACKING_TILE16_F16: 64,
    pb.PACKING_TILE16_BF16: 64,
    pb.PACKING_TILE16_Q8_0: 34,
    pb.PACKING_TILE16_Q4_0: 18,
    pb.PACKING_TILE16_Q4_1: 20,
    pb.PACKING_TILE16_Q6_K: 36,
    pb.PACKING_TILE16_Q4_PAIRS: 20,
}
# Rows of codes and their scales, what CUDA targets have beside rows of bf16.
CODE_ROW_PACKINGS: Final = frozenset({pb.PACKING_ROWS_Q8, pb.PACKING_ROWS_FP8})
# And those of what a tile has once, and once for each pair of blocks, up to a multiple of four.
_TILE_NBYTES: Final[dict[int, int]] = {pb.PACKING_TILE16_Q4_PAIRS: 4 * TILE_OUTPUTS}
_PAIR_NBYTES: Final[dict[int, int]] = {pb.PACKING_TILE16_Q4_PAIRS: 1}
PLAIN_ELEMENT_PACKINGS: Final = frozenset(
    {
        pb.PACKING_TILE16_F32,
        pb.PACKING_TILE16_F16,
        pb.PACKING_TILE16_BF16,
        pb.PACKING_ROWS_BF16,
    }
)


def packed_nbytes(packing: int, outputs: int, width: int) -> int:
    """Bytes of a packed matrix [outputs, width], the zero rows of a last tile included."""
    if packing in CODE_ROW_PACKINGS:
        blocks = -(-width // ROWS_Q8_BLOCK) if packing == pb.PACKING_ROWS_Q8 else 1
        # The scales take whole rows, too: the last one is filled with zeros.
        return width * (outputs + -(-4 * blocks * outputs // width))
    if packing == pb.PACKING_ROWS_BF16:
        return 2 * outputs * width
    tiles = -(-outputs // TILE_OUTPUTS)
    in_blocks = TILE_OUTPUTS * width * _BLOCK_NBYTES[packing] // Q8_BLOCK
    flags = -(-(width // Q8_PAIR) // 4) * 4 * _PAIR_NBYTES.get(packing, 0)
    return tiles * (in_blocks + flags + _TILE_NBYTES.get(packing, 0))


def dense_nbytes(dtype: pb.DType, shape: tuple[int, ...]) -> int:
    """Bytes of row-major elements or, for an activation dtype, of rows of its last extent."""
    if dtype in ELEMENT_NBYTES:
        return prod(shape) * ELEMENT_NBYTES[dtype]
    return prod(shape[:-1]) * _DTYPE_FORMAT[dtype].row_nbytes(shape[-1])


@dataclass(frozen=True)
class BufferHandle:
    """One buffer of a manifest. `shape` lacks the symbolic leading count, where there is one;
    `nbytes` is then that of one row. An operand begins at `first_byte`."""

    index: int
    name: str
    buffer_class: pb.BufferClass
    dtype: pb.DType
    packing: int
    leading: pb.LeadingCount
    shape: tuple[int, ...]
    nbytes: int
    resource: str = ""
    offset: int = 0
    first_byte: int = 0

    def from_byte(self, first_byte: int) -> BufferHandle:
        """The same buffer without what comes before a byte, for an operand."""
        return self if first_byte == self.first_byte else replace(self, first_byte=first_byte)

    @property
    def is_fixed(self) -> bool:
        """Whether `nbytes` is that of the whole buffer."""
        return self.leading == pb.LEADING_COUNT_FIXED


@dataclass(frozen=True)
class Rows:
    """A set of rows: the buffer that holds the live number (i32[1]) and the most there can be."""

    count: BufferHandle
    capacity: int


@dataclass(frozen=True)
class Activation:
    """Rows of `width` activations in one format."""

    buffer: BufferHandle
    width: int
    format: ActivationFormat

    def from_row(self, row: int) -> Activation:
        """The same rows without those before `row`."""
        first_byte = self.buffer.first_byte + row * self.format.row_nbytes(self.width)
        return replace(self, buffer=self.buffer.from_byte(first_byte))


@dataclass(frozen=True)
class Matrix:
    """A packed weight matrix of logical shape [outputs, width]."""

    buffer: BufferHandle
    outputs: int
    width: int

    @property
    def packing(self) -> int:
        """Its byte layout."""
        return self.buffer.packing

    @property
    def is_quantised(self) -> bool:
        """Whether its elements are codes with scales."""
        return self.buffer.packing not in PLAIN_ELEMENT_PACKINGS


@dataclass(frozen=True)
class LaneLengths:
    """The lanes of a program's packed rows and how many each has (i32), one after the other."""

    lanes: Rows
    query_length: BufferHandle


@dataclass(frozen=True)
class RowBinding:
    """Where the rows of a program stand: their positions and request slots (i32 each); `lengths`
    where a lane has several."""

    rows: Rows
    positions: BufferHandle
    slot: BufferHandle
    lengths: LaneLengths | None = None


@dataclass(frozen=True)
class AttendingRows:
    """Rows that have yet to attend, their keys and values cached: where they stand, what the result
    is added to (f32), and their queries as attention reads them."""

    at: RowBinding
    x: Activation
    queries: BufferHandle
