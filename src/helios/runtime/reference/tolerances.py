"""How far a launch's results may be from the reference's, and how far they are.

`differ` is the caller, and tests that compare with the reference themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from helios.runtime.manifest import DType, Launch, Packing

# Largest error of one launch, relative to the largest magnitude in the row: rounding to the
# storage format, and for f32 the order of sums and the argument of sines.
TOLERANCES: Final[Mapping[DType, float]] = {
    DType.F32: 1e-3,
    DType.F16: 2e-3,
    DType.BF16: 1e-2,
    DType.ACT_Q8: 1e-2,
    DType.ACT_Q16: 1e-3,
    DType.ACT_Q8_PAIRS: 1e-2,
}
# The same for what kernels write whose products take more than the format rounds: scores of bf16
# queries are off by 2^-9 of themselves, and the exponential turns that into a relative error.
KERNEL_TOLERANCES: Final[Mapping[str, float]] = {"attention_bf16": 3e-2}
# So much more where blocks lie in pairs: each block's sum is rounded to what the pair's scale can
# hold, which the reference, multiplying in float32, doesn't do.
_PAIRS_FACTOR: Final = 4.0


def tolerance_of(launch: Launch, dtype: DType, tolerances: Mapping[DType, float]) -> float:
    """What `row_errors` may be of a launch's results, which a buffer of this type holds."""
    tolerance = KERNEL_TOLERANCES.get(launch.kernel.name, tolerances.get(dtype, 0.0))
    pairs = _attribute(launch, "packing") == Packing.TILE16_Q4_PAIRS
    return tolerance * _PAIRS_FACTOR if pairs else tolerance


def row_errors(got: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.float64]:
    """|got − expected| over the largest expected magnitude of the same row (last axis); zero
    where both are equal or not a number, infinite where only one is."""
    with np.errstate(invalid="ignore", over="ignore"):
        wide_got, wide_expected = got.astype(np.float64), expected.astype(np.float64)
        same = (wide_got == wide_expected) | (np.isnan(wide_got) & np.isnan(wide_expected))
        distance = np.abs(wide_got - wide_expected)
        finite = np.where(np.isfinite(wide_expected), np.abs(wide_expected), 0)
        largest = finite.max(axis=-1, keepdims=True, initial=0)
        errors = np.where(same, 0.0, distance / np.maximum(largest, np.finfo(np.float32).tiny))
    return np.where(np.isnan(errors), np.inf, errors)


def _attribute(launch: Launch, name: str) -> int | None:
    """A launch's integer by name, None where its kernel has none."""
    if name not in launch.kernel.integers:
        return None
    return launch.integers[launch.kernel.integers.index(name)]
