"""Array types of the reference kernels and the few rules that all of them share.

A reference kernel is a function of named arrays: the operands of `docs/kernels.md` in their order,
then its attributes by keyword. Operands are flat and contiguous; a kernel shapes them itself.
Activations and cache planes are plain float32 whatever the manifest declares, so `format`
attributes are accepted and have no effect.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
U32 = NDArray[np.uint32]
U8 = NDArray[np.uint8]
Bools = NDArray[np.bool_]
Records = NDArray[np.void]


def live_rows(rows: I32, capacity: int) -> int:
    """The live number of rows, clamped to [0, capacity]."""
    return max(0, min(int(rows[0]), capacity))


def rows_of(array: F32, count: int, width: int) -> F32:
    """The first `count` rows of `width` elements, as a view."""
    return array[: count * width].reshape(count, width)


def gather(source: NDArray[Any], index: NDArray[Any]) -> NDArray[Any]:
    """`source[index]` along the first axis; zeros where an index is out of range."""
    inside = (index >= 0) & (index < len(source))
    taken = source[np.where(inside, index, 0)]
    taken[~inside] = 0
    return taken
