"""Unpacking against a packer that places one element at a time, as docs/kernels.md words it."""

from __future__ import annotations

import numpy as np
import pytest

from helios.errors import ExecutionError
from helios.runtime.manifest import DType, Packing, packed_nbytes
from helios.runtime.reference.unpack import PackedMatrix, unpack

OUTPUTS, WIDTH = 19, 64  # a partial second tile, two blocks a row
TILES, BLOCKS = 2, 2


def random() -> np.random.Generator:
    return np.random.default_rng(71)


def expected_tiles(fill: float = 0.0) -> np.ndarray:
    return np.full((OUTPUTS, WIDTH), fill, np.float64)


def test_tiled_f32_and_f16() -> None:
    for element, packing in ((np.float32, Packing.TILE16_F32), (np.float16, Packing.TILE16_F16)):
        matrix = random().standard_normal((OUTPUTS, WIDTH)).astype(element)
        packed = np.zeros((TILES, WIDTH, 16), element)
        for n in range(OUTPUTS):
            for k in range(WIDTH):
                packed[n // 16, k, n % 16] = matrix[n, k]
        found = unpack(packed.reshape(-1).view(np.uint8), packing, OUTPUTS, WIDTH)
        np.testing.assert_array_equal(found, matrix.astype(np.float32))


def test_tiled_bf16() -> None:
    codes = random().integers(0x3F00, 0x4080, (OUTPUTS, WIDTH)).astype(np.uint16)
    packed = np.zeros((TILES, WIDTH // 2, 16, 2), np.uint16)
    for n in range(OUTPUTS):
        for k in range(WIDTH):
            packed[n // 16, k // 2, n % 16, k % 2] = codes[n, k]
    found = unpack(packed.reshape(-1).view(np.uint8), Packing.TILE16_BF16, OUTPUTS, WIDTH)
    # bf16 by its definition: sign 1, exponent 8 with bias 127, fraction 7
    exponent, fraction = (codes >> 7).astype(int) - 127, codes % 128
    np.testing.assert_array_equal(found, (1 + fraction / 128) * 2.0**exponent)


def test_rows_of_bf16() -> None:
    values = random().integers(-64, 64, (OUTPUTS, WIDTH)).astype(np.float32)
    codes = (values.view(np.uint32) >> 16).astype(np.uint16)
    raw = codes.reshape(-1).view(np.uint8)
    np.testing.assert_array_equal(unpack(raw, Packing.ROWS_BF16, OUTPUTS, WIDTH), values)
    assert packed_nbytes(Packing.ROWS_BF16, OUTPUTS, WIDTH) == raw.nbytes


def test_tiled_q8_0() -> None:
    values = random().integers(-128, 128, (OUTPUTS, WIDTH))
    scales = random().uniform(0.01, 0.1, (OUTPUTS, BLOCKS)).astype(np.float16)
    q = np.zeros((TILES, BLOCKS, 8, 16, 4), np.uint8)
    d = np.zeros((TILES, BLOCKS, 16), np.float16)
    expected = expected_tiles()
    for n in range(OUTPUTS):
        for k in range(WIDTH):
            b, inside = divmod(k, 32)
            q[n // 16, b, inside // 4, n % 16, inside % 4] = values[n, k] + 128
            d[n // 16, b, n % 16] = scales[n, b]
            expected[n, k] = float(scales[n, b]) * values[n, k]
    packed = np.frombuffer(q.tobytes() + d.tobytes(), np.uint8)
    found = unpack(packed, Packing.TILE16_Q8_0, OUTPUTS, WIDTH)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("packing", [Packing.TILE16_Q4_0, Packing.TILE16_Q4_1])
def test_tiled_nibbles(packing: Packing) -> None:
    values = random().integers(0, 16, (OUTPUTS, WIDTH))
    scales = random().uniform(0.01, 0.1, (OUTPUTS, BLOCKS)).astype(np.float16)
    minima = random().uniform(-1, 1, (OUTPUTS, BLOCKS)).astype(np.float16)
    q = np.zeros((TILES, BLOCKS, 4, 16, 4), np.uint8)
    d = np.zeros((TILES, BLOCKS, 16), np.float16)
    m = np.zeros((TILES, BLOCKS, 16), np.float16)
    expected = expected_tiles()
    for n in range(OUTPUTS):
        for k in range(WIDTH):
            b, inside = divmod(k, 32)
            high, place = divmod(inside, 16)
            q[n // 16, b, place // 4, n % 16, place % 4] |= values[n, k] << (4 * high)
            d[n // 16, b, n % 16] = scales[n, b]
            m[n // 16, b, n % 16] = minima[n, b]
            if packing is Packing.TILE16_Q4_1:
                expected[n, k] = float(scales[n, b]) * values[n, k] + float(minima[n, b])
            else:
                expected[n, k] = float(scales[n, b]) * (values[n, k] - 8)
    planes = [q, d] if packing is Packing.TILE16_Q4_0 else [q, d, m]
    packed = np.frombuffer(b"".join(plane.tobytes() for plane in planes), np.uint8)
    found = unpack(packed, packing, OUTPUTS, WIDTH)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_tiled_q6_k() -> None:
    values = random().integers(0, 64, (OUTPUTS, WIDTH))
    halves = random().integers(-128, 128, (OUTPUTS, 2 * BLOCKS))
    scales = random().uniform(0.001, 0.01, (OUTPUTS, BLOCKS)).astype(np.float16)
    q = np.zeros((TILES, BLOCKS, 8, 16, 4), np.uint8)
    s = np.zeros((TILES, BLOCKS, 2, 16), np.int8)
    d = np.zeros((TILES, BLOCKS, 16), np.float16)
    expected = expected_tiles()
    for n in range(OUTPUTS):
        for k in range(WIDTH):
            b, inside = divmod(k, 32)
            q[n // 16, b, inside // 4, n % 16, inside % 4] = values[n, k]
            s[n // 16, b, inside // 16, n % 16] = halves[n, k // 16]
            d[n // 16, b, n % 16] = scales[n, b]
            expected[n, k] = float(scales[n, b]) * halves[n, k // 16] * (values[n, k] - 32)
    packed = np.frombuffer(q.tobytes() + s.tobytes() + d.tobytes(), np.uint8)
    found = unpack(packed, Packing.TILE16_Q6_K, OUTPUTS, WIDTH)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_plain_matrix_takes_the_buffers_dtype() -> None:
    matrix = random().standard_normal((3, 5)).astype(np.float16)
    raw = matrix.reshape(-1).view(np.uint8)
    np.testing.assert_array_equal(unpack(raw, Packing.PLAIN, 3, 5, DType.F16), matrix)


def test_matrix_is_unpacked_once() -> None:
    raw = np.zeros(16 * 4 * 4, np.uint8)
    matrix = PackedMatrix("w", raw, DType.U8)
    first = matrix.matrix(Packing.TILE16_F32, 16, 4)
    assert matrix.matrix(Packing.TILE16_F32, 16, 4) is first


@pytest.mark.parametrize(
    ("packing", "width", "nbytes", "complaint"),
    [
        (Packing.TILE16_F32, 4, 16 * 4 * 4 - 1, "needs 256 bytes"),
        (Packing.TILE16_Q4_1, 48, 4096, "multiples of 32"),
        (Packing.TILE16_BF16, 3, 4096, "multiples of 2"),
        (99, 32, 4096, "packing 99 is unknown"),
    ],
)
def test_bytes_that_cannot_be_a_matrix(
    packing: int, width: int, nbytes: int, complaint: str
) -> None:
    matrix = PackedMatrix("blocks.0.up", np.zeros(nbytes, np.uint8), DType.U8)
    with pytest.raises(ExecutionError, match=rf"blocks\.0\.up.*{complaint}"):
        matrix.matrix(packing, 16, width)
