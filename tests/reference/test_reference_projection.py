"""Embedding, projections and normalisation against float64 formulas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.runtime.manifest import DType, Packing
from helios.runtime.reference.normalisation import rms_norm
from helios.runtime.reference.projection import embed, linear, linear_silu_mul
from helios.runtime.reference.unpack import PackedMatrix

CAPACITY = 4


def plain(matrix: np.ndarray) -> PackedMatrix:
    return PackedMatrix("w", matrix.astype(np.float32).reshape(-1).view(np.uint8), DType.F32)


def live(count: int) -> np.ndarray:
    return np.array([count], np.int32)


def random(seed: int = 5) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("rows", [-1, 0, 3, CAPACITY, CAPACITY + 1])
def test_linear_touches_live_rows_only(rows: int) -> None:
    x = random().standard_normal((CAPACITY, 8)).astype(np.float32)
    w = random(6).standard_normal((5, 8)).astype(np.float32)
    bias = random(7).standard_normal(5).astype(np.float32)
    out = np.full(CAPACITY * 5, 9, np.float32)
    linear(
        live(rows), x.reshape(-1), plain(w), bias, out,
        capacity=CAPACITY, width=8, outputs=5, packing=Packing.PLAIN, format=0, accumulate=0,
    )  # fmt: skip
    count = min(max(rows, 0), CAPACITY)
    expected = np.full((CAPACITY, 5), 9.0)
    for r in range(count):
        for n in range(5):
            expected[r, n] = sum(float(x[r, k]) * float(w[n, k]) for k in range(8)) + bias[n]
    np.testing.assert_allclose(out.reshape(CAPACITY, 5), expected, rtol=1e-5, atol=1e-6)


def test_linear_accumulates() -> None:
    x, w = np.ones((1, 4), np.float32), np.ones((2, 4), np.float32)
    out = np.array([10, 20], np.float32)
    linear(
        live(1), x.reshape(-1), plain(w), None, out,
        capacity=1, width=4, outputs=2, packing=Packing.PLAIN, format=1, accumulate=1,
    )  # fmt: skip
    assert out.tolist() == [14, 24]


def test_linear_silu_mul_reads_alternating_tiles() -> None:
    outputs, width = 32, 8
    x = random().standard_normal((2, width))
    gate, up = random(1).standard_normal((2, outputs, width))
    interleaved = np.concatenate([gate[:16], up[:16], gate[16:], up[16:]])
    out = np.zeros(2 * outputs, np.float32)
    linear_silu_mul(
        live(2), x.astype(np.float32).reshape(-1), plain(interleaved), out,
        capacity=2, width=width, outputs=outputs, packing=Packing.PLAIN, format=0, out_format=2,
    )  # fmt: skip
    g, u = x @ gate.T, x @ up.T
    expected = g / (1 + np.exp(-g)) * u
    np.testing.assert_allclose(out.reshape(2, outputs), expected, rtol=1e-4, atol=1e-5)


def test_linear_silu_mul_reads_alternating_groups_of_rows() -> None:
    outputs, width = 16, 8
    x = random().integers(-3, 4, (2, width)).astype(np.float32)
    gate, up = random(1).integers(-3, 4, (2, outputs, width)).astype(np.float32)
    rows = np.concatenate([gate[:8], up[:8], gate[8:], up[8:]])
    codes = (rows.view(np.uint32) >> 16).astype(np.uint16)
    weight = PackedMatrix("w", codes.reshape(-1).view(np.uint8), DType.BF16)
    out = np.zeros(2 * outputs, np.float32)
    linear_silu_mul(
        live(2), x.reshape(-1), weight, out,
        capacity=2, width=width, outputs=outputs, packing=Packing.ROWS_BF16, format=1, out_format=1,
    )  # fmt: skip
    g, u = x @ gate.T, x @ up.T
    expected = g / (1 + np.exp(-g)) * u
    np.testing.assert_allclose(out.reshape(2, outputs), expected, rtol=1e-5, atol=1e-6)


def test_silu_of_a_very_negative_gate_is_zero() -> None:
    gate_up = np.concatenate([np.full((16, 1), -200), np.ones((16, 1))])
    out = np.full(16, 7, np.float32)
    linear_silu_mul(
        live(1), np.ones(1, np.float32), plain(gate_up), out,
        capacity=1, width=1, outputs=16, packing=Packing.PLAIN, format=0, out_format=0,
    )  # fmt: skip
    np.testing.assert_array_equal(out, np.zeros(16))


def test_embed_scales_and_reads_zero_for_a_bad_token() -> None:
    table = np.arange(12).reshape(4, 3)
    out = np.full(4 * 3, 9, np.float32)
    tokens = np.array([3, -1, 4, 0], np.int32)
    embed(
        live(4), tokens, plain(table), out,
        capacity=4, vocab=4, width=3, packing=Packing.PLAIN, scale=2.0,
    )  # fmt: skip
    assert out.reshape(4, 3).tolist() == [[18, 20, 22], [0, 0, 0], [0, 0, 0], [0, 2, 4]]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), magnitude=st.sampled_from([1e-4, 1.0, 1e4]))
def test_rms_norm(seed: int, magnitude: float) -> None:
    x = (magnitude * random(seed).standard_normal((3, 16))).astype(np.float32)
    weight = random(seed + 1).standard_normal(16).astype(np.float32)
    out = np.zeros(3 * 16, np.float32)
    rms_norm(live(3), x.reshape(-1), weight, out, capacity=3, width=16, format=1, epsilon=1e-5)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(out.reshape(3, 16), expected, rtol=1e-5)
