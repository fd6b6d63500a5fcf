"""Packs Q4_1 rows into TILE16_Q4_PAIRS of docs/kernels.md, whose block scales are integers.

Codes are moved, as everywhere in `packing`, and no scale is rounded: an output's scales and minima
become multiples of a power of two of its own, as nearly all of trained models are within 16 bits (a
float16 has 11). A pair of blocks of a tile in which one isn't keeps the float16 numbers. `weights`
decides which matrices are packed so.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from helios.kernels.catalogue import Q8_PAIR, TILE_OUTPUTS
from ignition.preparation.packing import Bytes, Storage

Doubles = NDArray[np.float64]

# So large that 32-bit sums of a pair's 64 products can't overflow, whatever the activations.
SCALE_LIMIT: Final = 28_000
MINIMUM_LIMIT: Final = 32_767
# Units tried for an output: the one that its largest scale needs and finer ones, with which the
# pair of a scale that sticks out keeps float16 numbers instead of all the others.
_UNITS: Final = 8
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
    flags = np.zeros((tiles, -(-pairs // 4) * 4), np.uint8)
    for first in range(0, tiles, _PASS_TILES):
        count = min(_PASS_TILES, tiles - first)
        part = rows[first * TILE_OUTPUTS : (first + count) * TILE_OUTPUTS]
        if first + count == tiles:
            part = np.concatenate([part, padding])
        blocks = part.reshape(count, TILE_OUTPUTS, pairs, 2, Storage.Q4_1.block_nbytes)
        at = slice(first, first + count)
        packed[at, :, :_CODES_NBYTES] = _codes(blocks[..., 4:])
        scales, units[at], flags[at, :pairs] = _scales(blocks[..., :4])
        packed[at, :, _CODES_NBYTES:] = scales
    planes = (packed, units.view(np.uint8), flags)
    return np.concatenate([plane.reshape(-1) for plane in planes])


def _codes(codes: Bytes) -> Bytes:
    """Bytes of two codes, `[tiles, 16, pairs, 2, 16]`, as `[tiles, pairs, 512]`."""
    tiles, outputs, pairs, blocks, _ = codes.shape
    grouped = codes.reshape(tiles, outputs, pairs, blocks, 4, 4)[:, _CODE_ORDER]
    return grouped.transpose(0, 2, 4, 1, 3, 5).reshape(tiles, pairs, -1)


def _scales(stored: Bytes) -> tuple[Bytes, NDArray[np.float32], Bytes]:
    """Float16 d and m of blocks, `[tiles, 16, pairs, 2, 4]` bytes, as they lie in the layout: the
    128 bytes of each pair, the units `[tiles, 16]`, and which pairs keep float16 numbers."""
    halves = np.moveaxis(np.ascontiguousarray(stored).view("<f2"), -1, 0)
    d, m = halves.astype(np.float64)
    # From codes between -8 and 7, whose sums fit 16 bits.
    m = m + _ZERO_POINT * d
    units = _units(d, m)
    scale = units[..., None, None]
    integers = np.stack([d / scale, m / scale])
    keeps = np.asarray(~_fits(integers[0], integers[1]).all(axis=(1, 3)), np.bool_)
    # What doesn't fit is not taken.
    limited = integers.clip(-MINIMUM_LIMIT, MINIMUM_LIMIT).astype("<i2")
    tiles, pairs = keeps.shape
    by_output = np.ascontiguousarray(limited.transpose(1, 3, 0, 2, 4)).view(np.uint8)
    by_block = np.ascontiguousarray(halves.transpose(1, 3, 0, 4, 2)).view(np.uint8)
    shape = (tiles, pairs, -1)
    chosen: Bytes = np.where(keeps[..., None], by_block.reshape(shape), by_output.reshape(shape))
    return chosen, units.astype(np.float32), keeps.astype(np.uint8)


def _units(d: Doubles, m: Doubles) -> Doubles:
    """Of each output the power of two of which most pairs of blocks are multiples."""
    least = np.maximum(np.abs(d) / SCALE_LIMIT, np.abs(m) / MINIMUM_LIMIT).max(axis=(2, 3))
    fraction, exponent = np.frexp(least)
    largest = np.ldexp(1.0, exponent - (fraction == 0.5))
    found: Doubles = largest.copy()
    most = _fitting_pairs(d, m, largest)
    # Seldom more than a few outputs.
    open_ones = np.nonzero(most < d.shape[2])
    d, m = d[open_ones], m[open_ones]
    for finer in range(1, _UNITS):
        unit = largest[open_ones] / 2**finer
        count = _fitting_pairs(d, m, unit)
        better = count > most[open_ones]
        found[open_ones] = np.where(better, unit, found[open_ones])
        most[open_ones] = np.maximum(count, most[open_ones])
    return found


def _fitting_pairs(d: Doubles, m: Doubles, unit: Doubles) -> NDArray[np.intp]:
    """Of each output the pairs of blocks whose scales are multiples of its unit."""
    scale = unit[..., None, None]
    return np.asarray(_fits(d / scale, m / scale).all(axis=-1).sum(axis=-1), np.intp)


def _fits(d: Doubles, m: Doubles) -> NDArray[np.bool_]:
    """Where both are integers within the limits."""
    whole = (d == np.rint(d)) & (m == np.rint(m))
    found: NDArray[np.bool_] = whole & (np.abs(d) <= SCALE_LIMIT) & (np.abs(m) <= MINIMUM_LIMIT)
    return found
