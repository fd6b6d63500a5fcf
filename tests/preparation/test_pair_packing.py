"""4-bit blocks in pairs: element by element what was stored, to the last bit where 16 bits hold an
output's scales."""

from __future__ import annotations

import numpy as np
import pytest

from helios.runtime.reference.unpack import unpack as reference_unpack
from helios.schema import execution_pb2 as pb
from ignition.preparation.packing import Storage
from ignition.preparation.pair_packing import MINIMUM_LIMIT, SCALE_LIMIT, fits, pack_pairs
from ignition.preparation.stored_matrix import StoredMatrix
from tests.preparation import tiles

PACKING = pb.PACKING_TILE16_Q4_PAIRS


def stored(outputs: int, width: int, d: np.ndarray, m: np.ndarray) -> StoredMatrix:
    """Q4_1 rows of random codes with these block scales `[outputs, blocks]`."""
    rng = np.random.default_rng(outputs * width)
    codes = rng.integers(0, 256, (outputs, width // 32, 16), np.uint8)
    scales = np.stack([d, m], axis=-1).astype("<f2").view(np.uint8)
    rows = np.concatenate([scales, codes], axis=-1).reshape(outputs, -1)
    return StoredMatrix(Storage.Q4_1, (outputs, width), rows)


def random_scales(outputs: int, blocks: int, span: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(outputs)
    d = rng.uniform(1, span, (outputs, blocks)) * 0.01
    return d.astype(np.float16), (-rng.uniform(6, 9, d.shape) * d).astype(np.float16)


@pytest.mark.parametrize(("outputs", "width"), [(16, 64), (21, 192), (530, 128)])
def test_scales_that_fit_are_kept_to_the_last_bit(outputs: int, width: int) -> None:
    d, m = random_scales(outputs, width // 32, span=1.9)
    # A unit that 16 bits reach from every scale: their last bits lie within four powers of two.
    m = (np.rint(m.astype(np.float64) * 2**12) / 2**12).astype(np.float16)
    matrix = stored(outputs, width, d, m)
    packed = pack_pairs(matrix.row_bytes, width)
    found = tiles.unpack(PACKING, matrix.shape, packed.tobytes())
    np.testing.assert_array_equal(found[:outputs], matrix.dequantise())
    assert not found[outputs:].any()
    np.testing.assert_array_equal(
        reference_unpack(packed, PACKING, outputs, width), found[:outputs]
    )


def test_scales_that_do_not_fit_are_rounded_to_a_part_of_the_largest() -> None:
    outputs, width = 19, 128
    d, m = random_scales(outputs, width // 32, span=1.5)
    d[:, 1] = d[:, 1] / 300
    d[3, 2] = -d[3, 2]
    m[5] = 0
    matrix = stored(outputs, width, d, m)
    found = reference_unpack(pack_pairs(matrix.row_bytes, width), PACKING, outputs, width)
    wide, least = d.astype(np.float64), m.astype(np.float64) + 8 * d.astype(np.float64)
    unit = np.maximum(np.abs(wide) / SCALE_LIMIT, np.abs(least) / MINIMUM_LIMIT).max(axis=1)
    # The unit is a power of two, so up to twice the least; a code is at most 8 of d away.
    allowed = unit[:, None] * (8 + 1) * 1.0001
    error = np.abs(found.astype(np.float64) - matrix.dequantise())
    assert np.all(error <= allowed)
    assert error.max() > 0


def test_integers_stay_where_sums_cannot_overflow() -> None:
    d = np.array([[1.0, 65504, 0.5, 0]], np.float16)
    m = np.array([[-7.0, -65504, 60000, 0]], np.float16)
    matrix = stored(1, 128, d, m)
    packed = pack_pairs(matrix.row_bytes, 128)
    scales = packed[: 2 * 640].reshape(2, 640)[:, 512:].view(np.int16).reshape(2, 2, 32)
    assert np.abs(scales[:, 0].astype(int)).max() <= SCALE_LIMIT
    assert np.abs(scales[:, 1].astype(int)).max() <= MINIMUM_LIMIT
    largest = 2 * (8 * 127 * 32 * SCALE_LIMIT + 127 * 32 * MINIMUM_LIMIT)
    assert largest < 2**31


def test_an_output_of_zeros_stays_one() -> None:
    zeros = np.zeros((16, 2), np.float16)
    matrix = stored(16, 64, zeros, zeros)
    found = reference_unpack(pack_pairs(matrix.row_bytes, 64), PACKING, 16, 64)
    assert not found.any()


@pytest.mark.parametrize(
    ("storage", "width", "run", "expected"),
    [
        (Storage.Q4_1, 128, None, True),
        (Storage.Q4_1, 128, 64, True),
        (Storage.Q4_1, 128, 32, False),
        (Storage.Q4_1, 96, None, False),
        (Storage.Q4_0, 128, None, False),
        (Storage.Q8_0, 128, None, False),
    ],
)
def test_which_matrices_are_packed_so(
    storage: Storage, width: int, run: int | None, expected: bool
) -> None:
    assert fits(storage, width, run) is expected
