"""Reads packed matrices element by element, as docs/kernels.md words the layouts.

Loops and struct only: an account of the layouts that shares nothing with the packer.
"""

from __future__ import annotations

import struct

import numpy as np

from helios.schema import execution_pb2 as schema

_PLAIN = {
    schema.PACKING_TILE16_F32: ("<f", 4),
    schema.PACKING_TILE16_F16: ("<e", 2),
}


def unpack(packing: int, shape: tuple[int, int], data: bytes) -> np.ndarray:
    """`f32 [N padded to tiles, K]`; asserts that `data` has exactly the bytes of the layout."""
    outputs, width = shape
    tiles = (outputs + 15) // 16
    result = np.empty((tiles * 16, width), np.float32)
    if packing in _PLAIN:
        form, size = _PLAIN[packing]
        assert len(data) == tiles * 16 * width * size
        for n in range(tiles * 16):
            for k in range(width):
                at = ((n // 16) * width + k) * 16 + n % 16
                result[n, k] = struct.unpack_from(form, data, at * size)[0]
        return result
    if packing == schema.PACKING_TILE16_BF16:
        assert len(data) == tiles * 16 * width * 2
        for n in range(tiles * 16):
            for k in range(width):
                at = (((n // 16) * (width // 2) + k // 2) * 16 + n % 16) * 2 + k % 2
                result[n, k] = struct.unpack("<f", b"\0\0" + data[at * 2 : at * 2 + 2])[0]
        return result
    if packing == schema.PACKING_TILE16_Q4_PAIRS:
        flags = -(-(width // 64) // 4) * 4
        assert len(data) == tiles * (width // 64 * 640 + 16 * 4 + flags)
        for n in range(tiles * 16):
            for k in range(width):
                result[n, k] = _paired(tiles, width // 64, data, n, k)
        return result
    for n in range(tiles * 16):
        for k in range(width):
            result[n, k] = _quantised(packing, tiles, width // 32, data, n, k)
    return result


def _quantised(packing: int, tiles: int, blocks: int, data: bytes, n: int, k: int) -> np.float32:
    t, i = divmod(n, 16)
    b, e = divmod(k, 32)
    block = t * blocks + b
    nibbles = packing in (schema.PACKING_TILE16_Q4_0, schema.PACKING_TILE16_Q4_1)
    groups = 4 if nibbles else 8
    code_nbytes = tiles * blocks * groups * 64
    column = e % 16 if nibbles else e
    g, j = divmod(column, 4)
    code = data[((block * groups + g) * 16 + i) * 4 + j]
    if nibbles:
        code = code >> 4 if e >= 16 else code & 15

    def half(plane_start: int) -> np.float32:
        return np.float32(struct.unpack_from("<e", data, plane_start + (block * 16 + i) * 2)[0])

    f16_nbytes = tiles * blocks * 16 * 2
    if packing == schema.PACKING_TILE16_Q8_0:
        assert len(data) == code_nbytes + f16_nbytes
        return half(code_nbytes) * np.float32(code - 128)
    if packing == schema.PACKING_TILE16_Q4_0:
        assert len(data) == code_nbytes + f16_nbytes
        return half(code_nbytes) * np.float32(code - 8)
    if packing == schema.PACKING_TILE16_Q4_1:
        assert len(data) == code_nbytes + 2 * f16_nbytes
        return half(code_nbytes) * np.float32(code) + half(code_nbytes + f16_nbytes)
    assert packing == schema.PACKING_TILE16_Q6_K
    scale_nbytes = tiles * blocks * 2 * 16
    assert len(data) == code_nbytes + scale_nbytes + f16_nbytes
    scale = struct.unpack_from("b", data, code_nbytes + (block * 2 + e // 16) * 16 + i)[0]
    return half(code_nbytes + scale_nbytes) * np.float32(scale) * np.float32(code - 32)


def _paired(tiles: int, pairs: int, data: bytes, n: int, k: int) -> np.float32:
    t, i = divmod(n, 16)
    pair, in_pair = divmod(k, 64)
    block, e = divmod(in_pair, 32)
    start = (t * pairs + pair) * 640
    g, j = divmod(e % 16, 4)
    half, place = i // 2 % 2, i // 4 * 2 + i % 2
    both = data[start + (((g * 2 + half) * 8 + place) * 2 + block) * 4 + j]
    code = both >> 4 if e >= 16 else both & 15
    flags_at = tiles * (pairs * 640 + 16 * 4)
    if data[flags_at + t * (-(-pairs // 4) * 4) + pair]:
        half_at = start + 512 + (block * 16 + i) * 2
        (d,) = struct.unpack_from("<e", data, half_at)
        (m,) = struct.unpack_from("<e", data, half_at + 64)
        return np.float32(d) * np.float32(code) + np.float32(m)
    scales_at = start + 512 + (i * 2 + block) * 2
    (d,) = struct.unpack_from("<h", data, scales_at)
    (m,) = struct.unpack_from("<h", data, scales_at + 64)
    (unit,) = struct.unpack_from("<f", data, tiles * pairs * 640 + n * 4)
    return np.float32(d * (code - 8) + m) * np.float32(unit)
