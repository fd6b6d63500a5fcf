"""Packs stored weight rows into the layouts of docs/kernels.md, bit-exact.

Holds the storage kinds that a matrix may have, the geometry of their blocks, and the moves that
put their bytes into tiles of 16 outputs, or codes and scales apart. It never computes a value:
codes and scales are moved, so what was stored is what the kernels read. It knows no checkpoint and
opens no file; callers hold a `stored_matrix.StoredMatrix` and use its `pack` or `pack_as_rows`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from helios.kernels.catalogue import CODE_ROW_MULTIPLE, ROWS_Q8_BLOCK, TILE_OUTPUTS
from helios.schema import execution_pb2

Bytes = NDArray[np.uint8]

BLOCK: Final = 32
SUPERBLOCK: Final = 256
# Tiles packed at a time: bounds the temporary arrays to a few MiB at usual widths.
_PASS_TILES: Final = 32


class Storage(Enum):
    """How a row's elements are stored: plain little-endian elements, or the blocks of GGUF."""

    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"
    Q8_0 = "Q8_0"
    Q4_0 = "Q4_0"
    Q4_1 = "Q4_1"
    Q6_K = "Q6_K"
    # Rows of codes, then the row's f32 scales: one a block of 128, or one.
    Q8_128 = "Q8_128"
    F8_E4M3 = "F8_E4M3"

    @property
    def block_elements(self) -> int:
        """Elements of one block; 1 for plain elements."""
        return _GEOMETRY[self].elements

    @property
    def block_nbytes(self) -> int:
        """Bytes of one block."""
        return _GEOMETRY[self].nbytes

    @property
    def packing(self) -> int:
        """Number of the schema's `Packing` that holds this storage."""
        return _GEOMETRY[self].packing

    @property
    def width_multiple(self) -> int:
        """A packed row's width is a multiple of this."""
        if self in CODE_ROWS:
            return CODE_ROW_MULTIPLE
        return 2 if self is Storage.BF16 else self.block_elements

    def row_scales(self, width: int) -> int:
        """Scales at the end of a row of codes."""
        return -(-width // ROWS_Q8_BLOCK) if self is Storage.Q8_128 else 1

    def row_nbytes(self, width: int) -> int:
        """Bytes of a row of `width` elements, a multiple of `block_elements`."""
        if self in CODE_ROWS:
            return width + 4 * self.row_scales(width)
        return width // self.block_elements * self.block_nbytes


# Those that lie row by row only, as CUDA targets have them.
CODE_ROWS: Final = (Storage.Q8_128, Storage.F8_E4M3)


@dataclass(frozen=True)
class _Geometry:
    elements: int
    nbytes: int
    packing: int


_GEOMETRY: Final = {
    Storage.F32: _Geometry(1, 4, execution_pb2.PACKING_TILE16_F32),
    Storage.F16: _Geometry(1, 2, execution_pb2.PACKING_TILE16_F16),
    Storage.BF16: _Geometry(1, 2, execution_pb2.PACKING_TILE16_BF16),
    # f16 d, i8 q[32]
    Storage.Q8_0: _Geometry(BLOCK, 34, execution_pb2.PACKING_TILE16_Q8_0),
    # f16 d, u8 q[16]: low nibbles are elements 0 to 15, high nibbles 16 to 31
    Storage.Q4_0: _Geometry(BLOCK, 18, execution_pb2.PACKING_TILE16_Q4_0),
    # f16 d, f16 m, u8 q[16] as Q4_0
    Storage.Q4_1: _Geometry(BLOCK, 20, execution_pb2.PACKING_TILE16_Q4_1),
    # u8 ql[128], u8 qh[64], i8 s[16], f16 d
    Storage.Q6_K: _Geometry(SUPERBLOCK, 210, execution_pb2.PACKING_TILE16_Q6_K),
    Storage.Q8_128: _Geometry(1, 1, execution_pb2.PACKING_ROWS_Q8),
    Storage.F8_E4M3: _Geometry(1, 1, execution_pb2.PACKING_ROWS_FP8),
}


@dataclass(frozen=True)
class PackedMatrix:
    """A matrix of logical `shape` [N, K] as the kernels read it.

    `packing` is a number of the schema's `Packing`; `data` is one-dimensional and contiguous,
    its N padded to whole tiles.
    """

    packing: int
    shape: tuple[int, int]
    data: Bytes

    @property
    def nbytes(self) -> int:
        """Bytes of `data`."""
        return self.data.nbytes


def packed_nbytes(storage: Storage, outputs: int, width: int) -> int:
    """Bytes that `pack_rows` returns for a matrix of shape [outputs, width]."""
    row = storage.row_nbytes(width)
    if storage is Storage.Q6_K:
        # Codes take a whole byte, and d is repeated for each block of 32.
        row = width + width // BLOCK * (2 + 2)
    return -(-outputs // TILE_OUTPUTS) * TILE_OUTPUTS * row


def pack_rows(storage: Storage, rows: Bytes, width: int) -> Bytes:
    """Packs stored rows `u8 [N, row_nbytes]` of `width` elements; returns `u8 [*]`.

    Not for rows of codes, which have no tiles. `width` is a multiple of `storage.width_multiple`.
    Padded rows are stored zeros, hence d = m = s = 0.
    """
    outputs = rows.shape[0]
    assert rows.shape[1] == storage.row_nbytes(width)
    assert width % storage.width_multiple == 0
    tiles = -(-outputs // TILE_OUTPUTS)
    split = _SPLIT[storage]
    packed = np.empty(packed_nbytes(storage, outputs, width), np.uint8)
    for first in range(0, tiles, _PASS_TILES):
        count = min(_PASS_TILES, tiles - first)
        part = rows[first * TILE_OUTPUTS : (first + count) * TILE_OUTPUTS]
        missing = count * TILE_OUTPUTS - part.shape[0]
        if missing:
            part = np.concatenate([part, np.zeros((missing, rows.shape[1]), np.uint8)])
        blocks = part.reshape(count, TILE_OUTPUTS, -1, storage.block_nbytes)
        start = 0
        for plane in split(blocks):
            # `plane` is [count, …] in the order of the layout; a plane spans all tiles.
            nbytes = plane.nbytes // count
            at = start + first * nbytes
            target = packed[at : at + count * nbytes].view(plane.dtype).reshape(plane.shape)
            target[...] = plane
            start += tiles * nbytes
    return packed


def code_rows_nbytes(storage: Storage, outputs: int, width: int) -> int:
    """Bytes that `pack_code_rows` returns for a matrix of shape [outputs, width]."""
    return (outputs + -(-4 * storage.row_scales(width) * outputs // width)) * width


def pack_code_rows(storage: Storage, rows: Bytes, width: int) -> Bytes:
    """Rows of codes as `ROWS_Q8` and `ROWS_FP8` have them: all codes, then the scales of all rows
    a block at a time, then zeros up to a multiple of `width`."""
    outputs = rows.shape[0]
    scales = np.ascontiguousarray(rows[:, width:]).view("<f4").T
    packed = np.zeros(code_rows_nbytes(storage, outputs, width), np.uint8)
    packed[: outputs * width].reshape(outputs, width)[...] = rows[:, :width]
    packed[outputs * width :][: scales.nbytes].view("<f4").reshape(scales.shape)[...] = scales
    return packed


# Each split function takes blocks `u8 [tiles, 16, blocks, block_nbytes]` and returns the planes
# of its layout, in order, each with the tile as leading axis. They are views where possible.


def _outputs_inside(values: Bytes, element: DTypeLike) -> NDArray[np.generic]:
    """[tiles, 16, blocks, bytes] to [tiles, blocks, elements of a block, 16]."""
    return values.view(element).transpose(0, 2, 3, 1)


def _split_f32(blocks: Bytes) -> list[NDArray[np.generic]]:
    return [_outputs_inside(blocks, np.uint32)]


def _split_f16(blocks: Bytes) -> list[NDArray[np.generic]]:
    return [_outputs_inside(blocks, np.uint16)]


def _split_bf16(blocks: Bytes) -> list[NDArray[np.generic]]:
    # Pairs of neighbours along K move as one 4-byte element.
    pairs = blocks.reshape(*blocks.shape[:2], -1, 4)
    return [_outputs_inside(pairs, np.uint32)]


def _split_q8_0(blocks: Bytes) -> list[NDArray[np.generic]]:
    # The kernels multiply unsigned codes: adding 128 to an int8 flips its top bit.
    codes = blocks[..., 2:] ^ np.uint8(0x80)
    return [_outputs_inside(codes, np.uint32), _outputs_inside(blocks[..., :2], np.uint16)]


def _split_q4_0(blocks: Bytes) -> list[NDArray[np.generic]]:
    # A stored byte already pairs elements i and i + 16, as the layout does.
    return [
        _outputs_inside(blocks[..., 2:], np.uint32),
        _outputs_inside(blocks[..., :2], np.uint16),
    ]


def _split_q4_1(blocks: Bytes) -> list[NDArray[np.generic]]:
    return [
        _outputs_inside(blocks[..., 4:], np.uint32),
        _outputs_inside(blocks[..., :2], np.uint16),
        _outputs_inside(blocks[..., 2:4], np.uint16),
    ]


def _split_q6_k(blocks: Bytes) -> list[NDArray[np.generic]]:
    tiles, outputs, superblocks, _ = blocks.shape
    count = superblocks * SUPERBLOCK // BLOCK
    codes = q6_k_codes(blocks).reshape(tiles, outputs, count, BLOCK)
    scales = blocks[..., 192:208].reshape(tiles, outputs, count, 2)
    d = np.repeat(blocks[..., 208:210], SUPERBLOCK // BLOCK, axis=2)
    return [
        _outputs_inside(codes, np.uint32),
        _outputs_inside(scales, np.uint8),
        _outputs_inside(d, np.uint16),
    ]


def q6_k_codes(blocks: Bytes) -> Bytes:
    """The codes (0 to 63) of Q6_K superblocks: `u8 […, 210]` to `u8 […, 256]`, in K order."""
    leading = blocks.shape[:-1]
    low = blocks[..., :128].reshape(*leading, 2, 2, 32)
    high = blocks[..., 128:192].reshape(*leading, 2, 1, 32)
    # A half of 128 elements: two runs of 32 low nibbles, then two of high nibbles; bits 4 and 5
    # of run r lie at bits 2r of the third array.
    nibbles = np.concatenate([low & np.uint8(0x0F), low >> np.uint8(4)], axis=-2)
    shifts = np.arange(0, 8, 2, dtype=np.uint8).reshape(4, 1)
    codes: Bytes = nibbles | (((high >> shifts) & np.uint8(3)) << np.uint8(4))
    return codes.reshape(*leading, SUPERBLOCK)


_SPLIT: Final[dict[Storage, Callable[[Bytes], list[NDArray[np.generic]]]]] = {
    Storage.F32: _split_f32,
    Storage.F16: _split_f16,
    Storage.BF16: _split_bf16,
    Storage.Q8_0: _split_q8_0,
    Storage.Q4_0: _split_q4_0,
    Storage.Q4_1: _split_q4_1,
    Storage.Q6_K: _split_q6_k,
}
