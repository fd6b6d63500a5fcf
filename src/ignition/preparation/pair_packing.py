"""Packs Q4_1 rows into TILE16_Q4_PAIRS of docs/kernels.md, whose block scales are integers.

Codes are moved, as everywhere in `packing`. An output's scales and minima become multiples of a
power of two of its own: exactly where they fit 16 bits, as they do for nearly all rows of trained
models (a float16 has 11 bits), and rounded to the nearest multiple otherwise. `weights` decides
which matrices are packed so.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from helios.kernels.catalogue import Q8_PAIR, TILE_OUTPUTS
from ignition.preparation.packing import Bytes, Storage

# So large that 32-bit sums of a pair's 64 products can't overflow, whatever the activations.
SCALE_LIMIT: Final = 28_000
MINIMUM_LIMIT: Final = 32_767
# The outputs of a tile in the order of a pair's two vectors of codes.
_CODE_ORDER: Final = (0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15)
_ZERO_POINT: Final = 8
_CODES_NBYTES: Final = 512
_PASS_TILES: Final = 32


def fits(storage: Storage, width: int, run: int | None) -> bool:
    """Whether a matrix can be packed so. `run` is the number of inputs that their producer writes
    at a time, None for all."""
    return storage is Storage.Q4_1 and width % Q8_PAIR == 0 and (run or width) % Q8_PAIR == 0


def pack_pairs(rows: Bytes, width: int) -> Bytes:
    """Packs Q4_1 rows `u8 [N, row_nbytes]` of `width` elements, a multiple of 64; returns
    `u8 [*]`. Padded outputs are zeros."""
    outputs = rows.shape[0]
    tiles = -(-outputs // TILE_OUTPUTS)
    pairs = width // Q8_PAIR
    padding = np.zeros((tiles * TILE_OUTPUTS - outputs, rows.shape[1]), np.uint8)
    packed = np.empty((tiles, pairs, _CODES_NBYTES + 128), np.uint8)
    units = np.empty((tiles, TILE_OUTPUTS), "<f4")
    for first in range(0, tiles, _PASS_TILES):
        count = min(_PASS_TILES, tiles - first)
        part = rows[first * TILE_OUTPUTS : (first + count) * TILE_OUTPUTS]
        if first + count == tiles:
            part = np.concatenate([part, padding])
        blocks = part.reshape(count, TILE_OUTPUTS, pairs, 2, Storage.Q4_1.block_nbytes)
        at = slice(first, first + count)
        packed[at, :, :_CODES_NBYTES] = _codes(blocks[..., 4:])
        scales, units[at] = _scales(blocks[..., :4])
        packed[at, :, _CODES_NBYTES:] = scales
    return np.concatenate([packed.reshape(-1), units.view(np.uint8).reshape(-1)])


def _codes(codes: Bytes) -> Bytes:
    """Bytes of two codes, `[tiles, 16, pairs, 2, 16]`, as `[tiles, pairs, 512]`."""
    tiles, outputs, pairs, blocks, _ = codes.shape
    grouped = codes.reshape(tiles, outputs, pairs, blocks, 4, 4)[:, _CODE_ORDER]
    return grouped.transpose(0, 2, 4, 1, 3, 5).reshape(tiles, pairs, -1)


def _scales(stored: Bytes) -> tuple[Bytes, NDArray[np.float32]]:
    """Float16 d and m of blocks, `[tiles, 16, pairs, 2, 4]` bytes, as the integers of the layout,
    `[tiles, pairs, 128]` bytes, and their unit `[tiles, 16]`."""
    d, m = np.moveaxis(np.ascontiguousarray(stored).view("<f2").astype(np.float64), -1, 0)
    # From codes between -8 and 7, whose sums fit 16 bits.
    m = m + _ZERO_POINT * d
    least = np.maximum(np.abs(d) / SCALE_LIMIT, np.abs(m) / MINIMUM_LIMIT).max(axis=(2, 3))
    fraction, exponent = np.frexp(least)
    unit = np.ldexp(1.0, exponent - (fraction == 0.5))
    integers = [
        np.rint(values / unit[:, :, None, None]).astype("<i2").transpose(0, 2, 1, 3)
        for values in (d, m)
    ]
    tiles, pairs = integers[0].shape[:2]
    both = [
        np.ascontiguousarray(plane).view(np.uint8).reshape(tiles, pairs, -1) for plane in integers
    ]
    return np.concatenate(both, axis=-1), np.where(least > 0, unit, 0).astype(np.float32)
