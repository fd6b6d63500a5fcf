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

from tests.native.pairs import PAIR, encode_pairs, pair_rows, random_pairs

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
        return Packed(*random_pairs(rng, outputs, width))
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
        return encode_pairs(np.ascontiguousarray(values, np.float32))
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
