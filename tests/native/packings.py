"""Random packed matrices with the f32 weights they stand for, and activation formats, in numpy.

Written from docs/kernels.md alone: the packers of Ignition and the unpackers of the reference
replay are other people's readings of the same page.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Bytes = NDArray[np.uint8]


class Packing(IntEnum):
    """Numbers of the schema's `Packing`."""

    TILE16_F32 = 2
    TILE16_F16 = 3
    TILE16_BF16 = 4
    TILE16_Q8_0 = 5
    TILE16_Q4_0 = 6
    TILE16_Q4_1 = 7
    TILE16_Q6_K = 8
    TILE16_Q4_PAIRS = 9
    ROWS_BF16 = 10
    ROWS_Q8 = 11
    ROWS_FP8 = 12


# What CUDA targets have, and what the native library has.
ROWS = (Packing.ROWS_BF16, Packing.ROWS_Q8, Packing.ROWS_FP8)
TILED = tuple(packing for packing in Packing if packing not in ROWS)
BLOCKS = (Packing.TILE16_Q8_0, Packing.TILE16_Q4_0, Packing.TILE16_Q4_1, Packing.TILE16_Q6_K)
QUANTISED = (*BLOCKS, Packing.TILE16_Q4_PAIRS)
F32_FORMAT, BF16_FORMAT, Q8_FORMAT, Q16_FORMAT, Q8_PAIRS_FORMAT = 0, 1, 2, 3, 4
FORMATS = (F32_FORMAT, BF16_FORMAT, Q8_FORMAT, Q16_FORMAT, Q8_PAIRS_FORMAT)
BLOCK_FORMATS = (Q8_FORMAT, Q16_FORMAT)
QUANTISED_FORMATS = (*BLOCK_FORMATS, Q8_PAIRS_FORMAT)
PAIR = 64
# The order of a tile's outputs in the two vectors of codes.
_HALVES = np.array([[0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15]])


@dataclass(frozen=True)
class Packed:
    """A packed matrix: its bytes and its weights `[outputs, width]`."""

    data: Bytes
    weights: F32


def to_bf16(values: F32) -> NDArray[np.uint16]:
    """Rounds to nearest even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: NDArray[np.uint16]) -> F32:
    """Widens."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_f16(values: F32) -> NDArray[np.uint16]:
    """Rounds to nearest even."""
    return np.ascontiguousarray(values, np.float32).astype(np.float16).view(np.uint16)


def from_f16(bits: NDArray[np.uint16]) -> F32:
    """Widens."""
    return bits.view(np.float16).astype(np.float32)


def as_bytes(*planes: NDArray[Any]) -> Bytes:
    """Planes one after the other."""
    return np.concatenate([np.ascontiguousarray(p).view(np.uint8).reshape(-1) for p in planes])


def random_packed(rng: np.random.Generator, packing: Packing, outputs: int, width: int) -> Packed:
    """Random weights; every code of a quantised packing occurs."""
    if packing is Packing.ROWS_BF16:
        bits = to_bf16(rng.standard_normal((outputs, width), np.float32))
        return Packed(as_bytes(bits), from_bf16(bits))
    if packing in ROWS:
        return _code_rows(rng, packing, outputs, width)
    tiles = -(-outputs // 16)
    live = (np.arange(tiles * 16) < outputs).reshape(tiles, 1, 16)
    if packing not in QUANTISED:
        weights = rng.standard_normal((tiles, width, 16), np.float32) * live
        if packing is Packing.TILE16_F32:
            data = as_bytes(weights)
        elif packing is Packing.TILE16_F16:
            half = weights.astype(np.float16)
            weights, data = half.astype(np.float32), as_bytes(half)
        else:
            rounded = to_bf16(weights)
            weights = from_bf16(rounded)
            data = as_bytes(rounded.reshape(tiles, width // 2, 2, 16).swapaxes(2, 3))
        return Packed(data, weights.swapaxes(1, 2).reshape(-1, width)[:outputs])

    if packing is Packing.TILE16_Q4_PAIRS:
        return _random_pairs(rng, outputs, width)
    blocks = width // 32
    levels = {
        Packing.TILE16_Q8_0: 256,
        Packing.TILE16_Q4_0: 16,
        Packing.TILE16_Q4_1: 16,
        Packing.TILE16_Q6_K: 64,
    }[packing]
    spread = levels * (64 if packing is Packing.TILE16_Q6_K else 1)
    codes = rng.integers(0, levels, (tiles, blocks, 32, 16)).astype(np.uint8)
    d = (rng.uniform(0.5, 1.5, (tiles, blocks, 16)) / spread * live).astype(np.float16)
    wide = d.astype(np.float32)[:, :, None, :]
    if packing in (Packing.TILE16_Q4_0, Packing.TILE16_Q4_1):
        both = (codes[:, :, :16] | codes[:, :, 16:] << 4).astype(np.uint8)
        q = both.reshape(tiles, blocks, 4, 4, 16).swapaxes(3, 4)
    else:
        q = codes.reshape(tiles, blocks, 8, 4, 16).swapaxes(3, 4)
    values = codes.astype(np.float32)
    if packing is Packing.TILE16_Q8_0:
        data, weights = as_bytes(q, d), wide * (values - 128)
    elif packing is Packing.TILE16_Q4_0:
        data, weights = as_bytes(q, d), wide * (values - 8)
    elif packing is Packing.TILE16_Q4_1:
        m = (rng.uniform(-1, 1, d.shape) * live).astype(np.float16)
        data, weights = as_bytes(q, d, m), wide * values + m.astype(np.float32)[:, :, None, :]
    else:
        halves = rng.integers(-128, 128, (tiles, blocks, 2, 16)) * live[:, :, None]
        data = as_bytes(q, halves.astype(np.int8), d)
        weights = wide * np.repeat(halves.astype(np.float32), 16, axis=2) * (values - 32)
    by_output = weights.reshape(tiles, width, 16).swapaxes(1, 2).reshape(-1, width)
    return Packed(data, by_output[:outputs])


def _code_rows(rng: np.random.Generator, packing: Packing, outputs: int, width: int) -> Packed:
    """Every code occurs in large matrices, but e4m3's NaN. Scales differ everywhere."""
    each = 128 if packing is Packing.ROWS_Q8 else width
    scales = rng.uniform(0.5, 1.5, (-(-width // each), outputs)).astype(np.float32)
    codes = rng.integers(0, 256, (outputs, width)).astype(np.uint8)
    if packing is Packing.ROWS_Q8:
        scales /= np.float32(64)
        numbers = codes.view(np.int8).astype(np.float32)
    else:
        codes[codes & 0x7F == 0x7F] ^= 1
        scales /= np.float32(128)
        exponent, fraction = (codes >> 3 & 15).astype(int), (codes & 7) / 8
        small = fraction * 2.0**-6
        size = np.where(exponent, (1 + fraction) * 2.0 ** (exponent - 7), small)
        numbers = np.where(codes & 0x80, -size, size).astype(np.float32)
    of_inputs = scales[np.arange(width) // each].T
    missing = -(codes.nbytes + scales.nbytes) % width
    data = as_bytes(codes, scales, np.zeros(missing, np.uint8))
    return Packed(data, numbers * of_inputs)


def _random_pairs(rng: np.random.Generator, outputs: int, width: int) -> Packed:
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
    whole = [as_bytes(plane).reshape(tiles, pairs, -1) for plane in (q, d, m, d_half, m_half)]
    integers_or_halves = [np.concatenate(whole[i : i + 2], axis=2) for i in (1, 3)]
    scales_of = np.where(flags[..., None] != 0, integers_or_halves[1], integers_or_halves[0])
    padded = np.zeros((tiles, -(-pairs // 4) * 4), np.uint8)
    padded[:, :pairs] = flags
    data = as_bytes(np.concatenate([whole[0], scales_of], axis=2), unit, padded)
    by_output = codes.transpose(0, 4, 1, 2, 3).astype(np.int64) - 8
    by_block = d.transpose(0, 2, 1, 3)[..., None].astype(np.int64)
    integers = by_output * by_block + m.transpose(0, 2, 1, 3)[..., None]
    by_unit = integers * unit.reshape(tiles, 16, 1, 1, 1).astype(np.float64)
    wide, least = (
        plane.transpose(0, 3, 1, 2)[..., None].astype(np.float64) for plane in (d_half, m_half)
    )
    by_half = wide * (by_output + 8) + least
    weights = np.where(flags[:, None, :, None, None] != 0, by_half, by_unit).reshape(-1, width)
    return Packed(data, weights.astype(np.float32)[:outputs])


def row_nbytes(format_: int, width: int) -> int:
    """Bytes of an activation row."""
    return {
        F32_FORMAT: 4 * width,
        BF16_FORMAT: 2 * width,
        Q8_FORMAT: width + width // 4,
        Q16_FORMAT: 2 * width + width // 4,
        Q8_PAIRS_FORMAT: width + 20 * (width // PAIR),
    }[format_]


def encode(values: F32, format_: int) -> Bytes:
    """Activation rows `[rows, width]` as bytes `[rows, row_nbytes]`."""
    rows, width = values.shape
    if format_ == F32_FORMAT:
        return np.ascontiguousarray(values, np.float32).view(np.uint8).reshape(rows, -1)
    if format_ == BF16_FORMAT:
        return to_bf16(values).view(np.uint8).reshape(rows, -1)
    if format_ == Q8_PAIRS_FORMAT:
        return _encode_pairs(np.ascontiguousarray(values, np.float32))
    limit = np.float32(127 if format_ == Q8_FORMAT else 32512)
    blocks = np.ascontiguousarray(values, np.float32).reshape(rows, width // 32, 32)
    largest = np.abs(blocks).max(axis=2, keepdims=True)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = limit / largest
    usable = np.isfinite(inverse)
    inverse = np.where(usable, inverse, np.float32(0))
    scale = np.where(usable, largest / limit, np.float32(0))[:, :, 0]
    q = np.rint(blocks * inverse)
    sums = (scale * q.sum(axis=2)).astype(np.float32)
    if format_ == Q8_FORMAT:
        planes = [q]
    else:
        low = (q.astype(np.int32) + 128) % 256 - 128
        planes = [(q - low) // 256, low]
    parts = [plane.astype(np.int8).reshape(rows, width).view(np.uint8) for plane in planes]
    parts += [plane.astype(np.float32).view(np.uint8).reshape(rows, -1) for plane in (scale, sums)]
    return np.concatenate(parts, axis=1)


def _encode_pairs(values: F32) -> Bytes:
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


def decode(data: Bytes, format_: int, width: int) -> F32:
    """The f32 values of activation rows, `[rows, width]`."""
    rows = np.ascontiguousarray(data).reshape(-1, row_nbytes(format_, width))
    if format_ == F32_FORMAT:
        return rows.view(np.float32)
    if format_ == BF16_FORMAT:
        return from_bf16(rows.view(np.uint16))
    if format_ == Q8_PAIRS_FORMAT:
        found = pair_rows(rows, width)
        scale = found.scales[..., None] * found.shares.astype(np.float32) / np.float32(32768)
        return (found.codes * scale[..., None]).astype(np.float32).reshape(len(rows), width)
    q = np.ascontiguousarray(rows[:, :width]).view(np.int8).astype(np.float32)
    end = width
    if format_ == Q16_FORMAT:
        end = 2 * width
        low = np.ascontiguousarray(rows[:, width:end]).view(np.int8).astype(np.float32)
        q = 256 * q + low
    scale = np.ascontiguousarray(rows[:, end : end + width // 8]).view(np.float32)
    return q * np.repeat(scale, 32, axis=1)
