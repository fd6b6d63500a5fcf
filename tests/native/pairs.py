"""Blocks in pairs, in numpy: the packing TILE16_Q4_PAIRS, the format q8 pairs, and their product.

Written from docs/kernels.md alone, as packings.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Bytes = NDArray[np.uint8]

PAIR = 64
# The order of a tile's outputs in the two vectors of codes.
_HALVES = np.array([[0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15]])


def _as_bytes(*planes: NDArray[Any]) -> Bytes:
    return np.concatenate([np.ascontiguousarray(p).view(np.uint8).reshape(-1) for p in planes])


def random_pairs(rng: np.random.Generator, outputs: int, width: int) -> tuple[Bytes, F32]:
    """A packed matrix and its weights `[outputs, width]`; every code occurs."""
    tiles, pairs = -(-outputs // 16), width // PAIR
    live = (np.arange(tiles * 16) < outputs).reshape(tiles, 16)
    codes = rng.integers(0, 16, (tiles, pairs, 2, 32, 16)).astype(np.uint8)
    scales = (tiles, pairs, 16, 2)
    d = (rng.integers(-28000, 28001, scales) * live[:, None, :, None]).astype(np.int16)
    m = (rng.integers(-32767, 32768, scales) * live[:, None, :, None]).astype(np.int16)
    unit = np.exp2(rng.integers(-19, -16, (tiles, 16))).astype(np.float32)
    # A fifth of the pairs have f16 scales: d of both blocks, m of both.
    flags = (rng.random((tiles, pairs)) < 0.2).astype(np.uint8)
    shown = live[:, None, None, :]
    d_half = (rng.uniform(-0.2, 0.2, (tiles, pairs, 2, 16)) * shown).astype(np.float16)
    m_half = (rng.uniform(-1, 1, d_half.shape) * shown).astype(np.float16)
    both = codes[:, :, :, :16] | codes[:, :, :, 16:] << 4
    # [tile, pair, block, group, j, output] to [tile, pair, group, half, output, block, j].
    grouped = both.reshape(tiles, pairs, 2, 4, 4, 16)[..., _HALVES]
    q = grouped.transpose(0, 1, 3, 5, 6, 2, 4)
    whole = [_as_bytes(plane).reshape(tiles, pairs, -1) for plane in (q, d, m, d_half, m_half)]
    integers_or_halves = [np.concatenate(whole[i : i + 2], axis=2) for i in (1, 3)]
    scales_of = np.where(flags[..., None] != 0, integers_or_halves[1], integers_or_halves[0])
    padded = np.zeros((tiles, -(-pairs // 4) * 4), np.uint8)
    padded[:, :pairs] = flags
    data = _as_bytes(np.concatenate([whole[0], scales_of], axis=2), unit, padded)
    by_output = codes.transpose(0, 4, 1, 2, 3).astype(np.int64) - 8
    by_block = d.transpose(0, 2, 1, 3)[..., None].astype(np.int64)
    integers = by_output * by_block + m.transpose(0, 2, 1, 3)[..., None]
    by_unit = integers * unit.reshape(tiles, 16, 1, 1, 1).astype(np.float64)
    wide, least = (
        plane.transpose(0, 3, 1, 2)[..., None].astype(np.float64) for plane in (d_half, m_half)
    )
    by_half = wide * (by_output + 8) + least
    weights = np.where(flags[:, None, :, None, None] != 0, by_half, by_unit).reshape(-1, width)
    return data, weights.astype(np.float32)[:outputs]


def encode_pairs(values: F32) -> Bytes:
    """Activation rows `[rows, width]` as bytes."""
    rows, width = values.shape
    pairs = width // PAIR
    blocks = values.reshape(rows, pairs, 2, 32)
    largest = np.abs(blocks).max(axis=3)
    top = largest.max(axis=2)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        steps = np.float32(127 * 32767) / top
        usable = np.isfinite(steps)
        exact = largest * (steps * np.float32(1 / 127))[..., None]
        exact = np.where(usable[..., None], exact, 0)
        share = np.minimum(exact.astype(np.int32) + 1, 32767)
        factor = np.where(usable[..., None], steps[..., None] / share.astype(np.float32), 0)
    q = np.rint(blocks * factor[..., None].astype(np.float32)).astype(np.int32)
    sums = q.sum(axis=3)
    scale = top * np.float32(32768 / (127 * 32767))
    # Four of the first block, four of the second in turn.
    codes = q.reshape(rows, pairs, 2, 8, 4).swapaxes(2, 3).astype(np.int8)
    planes: list[NDArray[Any]] = [
        codes,
        scale.astype(np.float32),
        share.astype(np.int16),
        ((sums * share + 16384) >> 15).astype(np.int16),
        (-8 * sums).astype(np.int32),
    ]
    return np.concatenate(
        [np.ascontiguousarray(plane).reshape(rows, -1).view(np.uint8) for plane in planes], axis=1
    )


@dataclass(frozen=True)
class PairRows:
    """What rows of q8 pairs hold: codes `[rows, pairs, 2, 32]`, integers `[rows, pairs, 2]`."""

    codes: NDArray[np.int64]
    scales: F32
    shares: NDArray[np.int64]
    sums: NDArray[np.int64]
    starts: NDArray[np.int64]


def pair_rows(data: Bytes, width: int) -> PairRows:
    """The fields of rows of q8 pairs."""
    rows, pairs = len(data), width // PAIR
    ends = np.cumsum([width, 4 * pairs, 4 * pairs, 4 * pairs])
    q, scales, shares, sums, starts = np.split(data, ends, axis=1)

    def integers(field: Bytes, kind: type) -> NDArray[np.int64]:
        return np.ascontiguousarray(field).view(kind).reshape(rows, pairs, 2).astype(np.int64)

    codes = np.ascontiguousarray(q).view(np.int8).reshape(rows, pairs, 8, 2, 4).swapaxes(2, 3)
    return PairRows(
        codes.reshape(rows, pairs, 2, 32).astype(np.int64),
        np.ascontiguousarray(scales).view(np.float32),
        integers(shares, np.int16),
        integers(sums, np.int16),
        integers(starts, np.int32),
    )


def pair_product(x: Bytes, weight: Bytes, outputs: int, width: int) -> NDArray[np.float64]:
    """The product of q8 pair rows and TILE16_Q4_PAIRS, `[rows, outputs]`: integers as the page has
    them, floating point in f64."""
    tiles, pairs = -(-outputs // 16), width // PAIR
    rows = pair_rows(x, width)
    cut = tiles * pairs * 640
    whole = weight[:cut].reshape(tiles, pairs, 640)
    unit = weight[cut : cut + tiles * 64].view(np.float32).reshape(-1)
    flags = weight[cut + tiles * 64 :].reshape(tiles, -1, 1)[:, :pairs]
    both = whole[..., :512].reshape(tiles, pairs, 4, 2, 8, 2, 4)
    grouped = np.empty((tiles, pairs, 2, 4, 4, 16), np.uint8)
    grouped[..., _HALVES] = both.transpose(0, 1, 5, 2, 6, 3, 4)
    halves = grouped.reshape(tiles, pairs, 2, 16, 16)
    codes = np.concatenate([halves & 15, halves >> 4], axis=3).astype(np.int64)
    d, m = (
        np.ascontiguousarray(whole[..., first : first + 64])
        .view(np.int16)
        .reshape(tiles, pairs, 16, 2)
        .astype(np.int64)
        for first in (512, 576)
    )
    sums = np.einsum("rpbk,tpbki->rtpib", rows.codes, codes) + rows.starts[:, None, :, None]
    shared = (sums * rows.shares[:, None, :, None] + 16384) >> 15
    integers = (shared * d + rows.sums[:, None, :, None] * m).sum(axis=4)
    assert np.abs(np.where(flags == 0, integers, 0)).max() < 2**31
    halves = np.ascontiguousarray(whole[..., 512:]).view(np.float16).astype(np.float64)
    wide, least = halves.reshape(tiles, pairs, 2, 2, 16).transpose(2, 0, 1, 4, 3)
    # Integers read as halves can be anything.
    with np.errstate(invalid="ignore"):
        floats = (shared * wide + rows.sums[:, None, :, None] * (least + 8 * wide)).sum(axis=4)
    # Of each pair, by tile and output.
    by_unit = integers * unit.reshape(tiles, 1, 16).astype(np.float64)
    parts = np.where(flags != 0, floats, by_unit)
    total = (parts * rows.scales.astype(np.float64)[:, None, :, None]).sum(axis=2)
    return total.reshape(len(x), -1)[:, :outputs]
