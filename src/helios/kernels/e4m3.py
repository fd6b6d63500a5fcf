"""The 8-bit floating-point numbers of ROWS_FP8: sign, four bits of exponent, three of fraction.

The smallest step is 2⁻⁹, the largest value 448; there is no infinity, and a code of seven ones is
NaN. All of them are bf16 numbers too.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

LARGEST: Final = 448.0
_BIAS: Final = 7
_STEP_OF_SMALLEST: Final = 2.0**-9
# Fraction bits that f32 has more, and how far its exponent's bias is from this one's.
_DROPPED: Final = 20
_BIAS_APART: Final = 127 - _BIAS


def _table() -> NDArray[np.float32]:
    codes = np.arange(256)
    exponent, fraction = codes >> 3 & 15, (codes & 7).astype(np.float64)
    normal = (8 + fraction) * 2.0 ** (exponent - _BIAS - 3)
    size = np.where(exponent == 0, fraction * _STEP_OF_SMALLEST, normal)
    size[codes & 0x7F == 0x7F] = np.nan
    return np.where(codes & 0x80, -size, size).astype(np.float32)


# What each code stands for.
VALUES: Final[NDArray[np.float32]] = _table()


def nearest(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Codes of the nearest numbers, ties to even; what is larger than the largest becomes it."""
    size = np.minimum(np.abs(np.ascontiguousarray(values, np.float32)), np.float32(LARGEST))
    bits = size.view(np.uint32)
    # Just under half a step, and the step's own parity: carries where nearest even goes up.
    half = np.uint32((1 << (_DROPPED - 1)) - 1)
    rounded = (bits + half + (bits >> _DROPPED & 1) >> _DROPPED).astype(np.int32)
    codes = rounded - (_BIAS_APART << 3)
    small = np.rint(size / np.float32(_STEP_OF_SMALLEST)).astype(np.int32)
    codes = np.where(size < 8 * _STEP_OF_SMALLEST, small, codes)
    codes = np.where(np.isnan(values), 0x7F, codes)
    return (codes | np.signbit(values).astype(np.int32) << 7).astype(np.uint8)
