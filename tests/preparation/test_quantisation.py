"""Quantisation: error bounds of each storage, and what must stay as it was."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from helios.kernels import e4m3
from ignition.preparation import quantisation
from ignition.preparation.errors import CheckpointError
from ignition.preparation.packing import Storage
from ignition.preparation.quantisation import WeightStorage, round_to_bf16, store_as
from ignition.preparation.stored_matrix import StoredMatrix, bf16_to_f32

from .blocks import random_matrix

MATRICES = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 3), st.sampled_from([32, 64])),
    elements=st.floats(-100, 100, width=32),
)


def _f32(values: np.ndarray) -> StoredMatrix:
    return StoredMatrix.from_elements(Storage.F32, values.astype(np.float32))


def _blocks(values: np.ndarray) -> np.ndarray:
    return values.reshape(values.shape[0], -1, 32)


@pytest.mark.parametrize("storage", list(Storage))
def test_as_stored_is_the_same_matrix(storage: Storage) -> None:
    matrix = random_matrix(storage, 4, 256, seed=1)
    assert store_as(matrix, WeightStorage.AS_STORED) is matrix


@pytest.mark.parametrize(
    ("choice", "storage"),
    [
        (WeightStorage.BF16, Storage.BF16),
        (WeightStorage.INT8, Storage.Q8_0),
        (WeightStorage.INT4, Storage.Q4_1),
    ],
)
def test_a_matrix_stored_so_already_is_not_touched(choice: WeightStorage, storage: Storage) -> None:
    matrix = random_matrix(storage, 4, 64, seed=1)
    assert store_as(matrix, choice) is matrix
    other = random_matrix(Storage.F16, 4, 64, seed=1)
    assert store_as(other, choice).storage is storage


@settings(deadline=None)
@given(MATRICES)
def test_int8_by_rows_errs_by_half_a_step_of_its_block(values: np.ndarray) -> None:
    wide = np.concatenate([values, values / 7, values[:, ::-1] * 3], axis=1)  # one block or two
    stored = store_as(_f32(wide), WeightStorage.INT8, by_rows=True)
    assert stored.storage is Storage.Q8_128
    found = stored.dequantise()
    for first in range(0, wide.shape[1], 128):
        block = slice(first, first + 128)
        largest = np.abs(wide[:, block]).max(axis=1, keepdims=True)
        error = np.abs(found[:, block] - wide[:, block])
        assert (error <= largest / 127 * (0.5 + 1e-4) + 1e-43).all()


@settings(deadline=None)
@given(MATRICES)
def test_fp8_errs_by_a_sixteenth_or_half_the_smallest_step(values: np.ndarray) -> None:
    stored = store_as(_f32(values), WeightStorage.FP8, by_rows=True)
    assert stored.storage is Storage.F8_E4M3
    scale = np.abs(values).max(axis=1, keepdims=True) / 448
    error = np.abs(stored.dequantise() - values)
    assert (error <= np.maximum(np.abs(values) / 16, scale * 2**-10) * (1 + 1e-5) + 1e-43).all()


def test_e4m3_has_the_values_of_its_fields_and_takes_the_nearest() -> None:
    for code in range(256):
        sign, exponent, fraction = -1 if code >> 7 else 1, code >> 3 & 15, code & 7
        size = 2.0 ** (exponent - 7) * (1 + fraction / 8) if exponent else fraction / 8 * 2.0**-6
        if code & 0x7F != 0x7F:
            assert e4m3.VALUES[code] == sign * size
    assert np.isnan(e4m3.VALUES[[0x7F, 0xFF]]).all()
    codes = np.arange(0x7F, dtype=np.uint8)
    values = e4m3.VALUES[codes]
    for sign, bit in ((1, 0), (-1, 0x80)):
        assert (e4m3.nearest(np.float32(sign) * values) == codes | bit).all()
        middle = (values[1:] + values[:-1]) / 2
        even = np.where(codes[:-1] & 1, codes[1:], codes[:-1])
        assert (e4m3.nearest(np.float32(sign) * middle) == even | bit).all()
        above = np.nextafter(middle, np.float32(np.inf))
        assert (e4m3.nearest(np.float32(sign) * above) == codes[1:] | bit).all()
    large = np.array([449, 1e30, np.inf, -np.inf], np.float32)
    assert e4m3.nearest(large).tolist() == [0x7E, 0x7E, 0x7E, 0xFE]


def test_rows_whose_scale_vanishes_are_zeros() -> None:
    values = np.array([[1e-45] * 32, [0] * 32], np.float32)
    for choice in (WeightStorage.INT8, WeightStorage.FP8):
        found = store_as(_f32(values), choice, by_rows=True).dequantise()
        assert np.abs(found).max() <= 1e-44


@settings(deadline=None)
@given(MATRICES)
def test_int8_errs_by_half_a_step_and_the_rounding_of_d(values: np.ndarray) -> None:
    stored = store_as(_f32(values), WeightStorage.INT8).dequantise()
    largest = np.abs(_blocks(values)).max(axis=-1)
    # Half a step of d, and 127 steps of d's own rounding (2⁻¹¹ of it, or half of f16's
    # smallest step where d is subnormal).
    bound = largest / 127 * (0.5 + 2**-10) + 127 * np.maximum(largest / 127 * 2**-11, 2**-25)
    error = np.abs(_blocks(stored) - _blocks(values)).max(axis=-1)
    assert (error <= bound * 1.001).all()


@settings(deadline=None)
@given(MATRICES)
def test_int4_squared_error_is_no_worse_than_that_of_the_plain_range(values: np.ndarray) -> None:
    stored = store_as(_f32(values), WeightStorage.INT4).dequantise()
    x = _blocks(values).astype(np.float64)
    low, high = x.min(axis=-1, keepdims=True), x.max(axis=-1, keepdims=True)
    d, m = ((high - low) / 15).astype(np.float16), low.astype(np.float16)
    d, m = d.astype(np.float64), m.astype(np.float64)
    codes = np.clip(np.rint((x - m) / np.where(d > 0, d, 1)), 0, 15)
    plain = np.square(codes * d + m - x).sum(axis=-1)
    ours = np.square(_blocks(stored) - x).sum(axis=-1)
    tolerance = 1e-5 * np.square(np.abs(x).max(axis=-1)) + 1e-12
    assert (ours <= plain * 1.001 + tolerance).all()


def test_int4_beats_the_plain_range_on_normal_weights() -> None:
    values = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    x = _blocks(values)
    low, reach = x.min(-1, keepdims=True), np.ptp(x, axis=-1, keepdims=True)
    plain = np.rint((x - low) / reach * 15) * reach / 15 + low
    ours = _blocks(store_as(_f32(values), WeightStorage.INT4).dequantise())
    assert np.square(ours - x).mean() < 0.9 * np.square(plain - x).mean()


@pytest.mark.parametrize("choice", [WeightStorage.INT8, WeightStorage.INT4, WeightStorage.BF16])
@pytest.mark.parametrize("value", [0.0, 0.5, -3.0])
def test_constant_blocks_are_kept_exactly(choice: WeightStorage, value: float) -> None:
    stored = store_as(_f32(np.full((2, 64), value)), choice).dequantise()
    tolerance = abs(value) * 2**-11 if choice is WeightStorage.INT8 else 0
    assert np.abs(stored - value).max() <= tolerance


@pytest.mark.parametrize("choice", [WeightStorage.INT8, WeightStorage.INT4])
def test_rows_quantise_alike_in_any_company(
    choice: WeightStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = random_matrix(Storage.F32, 37, 64, seed=2)
    whole = store_as(matrix, choice)
    monkeypatch.setattr(quantisation, "_PASS_ELEMENTS", 5 * 64)
    assert np.array_equal(store_as(matrix, choice).row_bytes, whole.row_bytes)
    alone = store_as(matrix.rows([21]), choice)
    assert np.array_equal(alone.row_bytes[0], whole.row_bytes[21])


@given(arrays.arrays(np.float32, 16, elements=st.floats(width=32)))
def test_bf16_is_the_nearest_value_and_ties_go_to_even(values: np.ndarray) -> None:
    bits = round_to_bf16(values)
    rounded = bf16_to_f32(bits)
    for x, y, pattern in zip(values, rounded, bits, strict=True):
        if not np.isfinite(x):
            assert np.array_equal(x, y, equal_nan=True)
            continue
        below = np.uint32(x.view(np.uint32) & np.uint32(0xFFFF0000))
        above = np.uint64(below) + 0x10000
        low = np.float64(below.view(np.float32))
        high = np.float64(np.uint32(above).view(np.float32))
        if np.isinf(high):
            # The step to infinity is as wide as the one before it.
            high = np.copysign(2.0**128, high)
        to_low, to_high = abs(np.float64(x) - low), abs(high - np.float64(x))
        if to_low < to_high:
            assert y == np.float32(low)
        elif to_high < to_low:
            with np.errstate(over="ignore"):
                assert y == np.float32(high)
        else:
            assert pattern & 1 == 0


def test_width_must_fit_the_blocks() -> None:
    with pytest.raises(CheckpointError, match="a matrix 48 wide can't be stored as int4"):
        store_as(random_matrix(Storage.F32, 2, 48, seed=0), WeightStorage.INT4)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    values = np.zeros((40, 32), np.float32)
    values[33, 5] = value
    with pytest.raises(CheckpointError, match="isn't finite"):
        store_as(_f32(values), WeightStorage.INT8)
