"""Reference RMS normalisation: the kernel, and the per-head form that attention uses."""

from __future__ import annotations

import numpy as np

from helios.runtime.reference.arrays import F32, I32, live_rows, rows_of


def normalised(x: F32, weight: F32, epsilon: float) -> F32:
    """`x / sqrt(mean(x²) + epsilon) · weight` over the last axis."""
    mean_square = np.mean(np.square(x), axis=-1, keepdims=True)
    result: F32 = x / np.sqrt(mean_square + np.float32(epsilon)) * weight
    return result


def rms_norm(
    rows: I32, x: F32, weight: F32, out: F32,
    *, capacity: int, width: int, format: int, epsilon: float,
) -> None:  # fmt: skip
    """Each live row of `x`, normalised and scaled by `weight`."""
    live = live_rows(rows, capacity)
    rows_of(out, live, width)[:] = normalised(rows_of(x, live, width), weight[:width], epsilon)


def weigh(
    rows: I32, x: F32, weight: F32, out: F32, squares: F32,
    *, capacity: int, width: int, format: int, block: int, blocks: int,
) -> None:  # fmt: skip
    """Each live row of `x` times `weight`, and its sum of squares or those of its blocks."""
    live = live_rows(rows, capacity)
    given = rows_of(x, live, width)
    rows_of(out, live, width)[:] = given * weight[:width]
    starts = np.arange(0, width, block) if blocks > 1 else [0]
    rows_of(squares, live, blocks)[:] = np.add.reduceat(np.square(given), starts, axis=1)


def inverse_roots(squares: F32, live: int, width: int, blocks: int, epsilon: float) -> F32:
    """What the products of weighed rows are scaled by, [live, 1]."""
    sums = rows_of(squares, live, blocks)
    mean_square = np.sum(sums, axis=1, keepdims=True) / np.float32(width)
    result: F32 = 1 / np.sqrt(mean_square + np.float32(epsilon))
    return result
