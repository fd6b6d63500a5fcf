"""4-bit blocks in pairs: element by element what was stored, to the last bit."""

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


def flags(packed: np.ndarray, outputs: int, width: int) -> np.ndarray:
    """Which pairs of blocks keep float16 scales, `[tiles, pairs]`."""
    tiles, pairs = -(-outputs // 16), width // 64
    padded = -(-pairs // 4) * 4
    return packed[-tiles * padded :].reshape(tiles, padded)[:, :pairs]


@pytest.mark.parametrize("span", [1.9, 1e3])
@pytest.mark.parametrize(("outputs", "width"), [(16, 64), (21, 192), (530, 128)])
def test_no_value_changes(outputs: int, width: int, span: float) -> None:
    matrix = stored(outputs, width, *random_scales(outputs, width // 32, span))
    packed = pack_pairs(matrix.row_bytes, width)
    found = tiles.unpack(PACKING, matrix.shape, packed.tobytes())
    np.testing.assert_array_equal(found[:outputs], matrix.dequantise())
    assert not found[outputs:].any()
    np.testing.assert_array_equal(
        reference_unpack(packed, PACKING, outputs, width), found[:outputs]
    )


def test_pairs_whose_scales_fit_16_bits_become_integers() -> None:
    rng = np.random.default_rng(7)
    d = (rng.integers(1024, 4096, (16, 8)) / 2**15).astype(np.float16)
    m = (-7.5 * d.astype(np.float64)).astype(np.float16)
    matrix = stored(16, 256, d, m)
    assert not flags(pack_pairs(matrix.row_bytes, 256), 16, 256).any()
    # One scale that sticks out costs its own pair alone.
    d[3, 5] *= 60
    odd = stored(16, 256, d, m)
    packed = pack_pairs(odd.row_bytes, 256)
    assert flags(packed, 16, 256).tolist() == [[0, 0, 1, 0]]
    np.testing.assert_array_equal(reference_unpack(packed, PACKING, 16, 256), odd.dequantise())


def test_integers_stay_where_sums_cannot_overflow() -> None:
    rng = np.random.default_rng(8)
    d = (rng.uniform(0.3, 1, (64, 16)) * rng.choice([-1, 1], (64, 16))).astype(np.float16)
    m = (rng.uniform(-9, -7, d.shape) * d).astype(np.float16)
    d[::16, 3] /= 1000
    packed = pack_pairs(stored(64, 512, d, m).row_bytes, 512)
    kept = flags(packed, 64, 512).astype(bool)
    assert kept.any()
    assert not kept.all()
    scales = packed[: 4 * 8 * 640].reshape(4, 8, 640)[~kept][:, 512:].copy().view(np.int16)
    assert np.abs(scales[:, :32].astype(int)).max() <= SCALE_LIMIT
    assert np.abs(scales[:, 32:].astype(int)).max() <= MINIMUM_LIMIT
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
