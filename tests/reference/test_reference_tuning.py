"""The reference's tuned projections are the plain ones; tuning picks the default."""

from __future__ import annotations

import numpy as np

from helios.runtime.manifest import DType, Packing
from helios.runtime.reference.projection import (
    linear,
    linear_silu_mul,
    linear_silu_mul_tuned,
    linear_tuned,
    tune,
)
from helios.runtime.reference.unpack import PackedMatrix

ROWS, WIDTH, OUTPUTS = 3, 8, 32


def plain(outputs: int) -> tuple[np.ndarray, PackedMatrix]:
    rng = np.random.default_rng(outputs)
    x = rng.standard_normal(ROWS * WIDTH).astype(np.float32)
    weights = rng.standard_normal((outputs, WIDTH)).astype(np.float32)
    return x, PackedMatrix("w", weights.reshape(-1).view(np.uint8), DType.F32)


def test_a_tuning_changes_nothing() -> None:
    live = np.array([ROWS], np.int32)
    shape = {"capacity": ROWS, "width": WIDTH, "packing": int(Packing.PLAIN), "format": 0}
    x, weight = plain(OUTPUTS)
    bias = np.arange(OUTPUTS, dtype=np.float32)
    outs = np.ones((2, ROWS * OUTPUTS), np.float32)
    linear(live, x, weight, bias, outs[0], outputs=OUTPUTS, accumulate=1, **shape)
    tuning = np.array([3], np.int32)
    linear_tuned(live, x, weight, bias, outs[1], tuning, outputs=OUTPUTS, accumulate=1, **shape)
    assert outs[0].tobytes() == outs[1].tobytes()
    x, weight = plain(2 * OUTPUTS)
    linear_silu_mul(live, x, weight, outs[0], outputs=OUTPUTS, out_format=0, **shape)
    linear_silu_mul_tuned(live, x, weight, outs[1], tuning, outputs=OUTPUTS, out_format=0, **shape)
    assert outs[0].tobytes() == outs[1].tobytes()


def test_the_default_is_picked() -> None:
    x, weight = plain(OUTPUTS)
    choice = np.array([-7], np.int32)
    tune(x, weight, np.zeros(ROWS * OUTPUTS, np.float32), choice, capacity=ROWS)
    assert choice[0] == 0
