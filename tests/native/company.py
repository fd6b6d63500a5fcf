"""Launches of some of a launch's rows: alone, in other company, in another order, with room left.

Bits of a row must be the same in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.native.launches import Array, Case

# Operands with a row for each row of the launch.
TOPS = ("top_tokens", "top_logprobs")
SCORES = ("out", "rank", *TOPS)
BY_ROW = (
    *("x", "squares", "tokens", "qkv", "queries", "positions", "slot", "logits", "logprobs"),
    *("target", "wanted", "grammar_mask", *SCORES),
)


def rows_of(case: Case, picked: Sequence[int], capacity: int, *, beyond: int = 0) -> Case:
    """The launch with only these rows, in this order, in a larger or equal capacity. Rows that
    aren't live hold bytes of `beyond`."""
    full = case.integers["capacity"]
    rows = np.asarray(picked, np.intp)

    def chosen(array: Array) -> Array:
        padding = np.empty((capacity - len(rows), *array.shape[1:]), array.dtype)
        padding.view(np.uint8)[...] = beyond
        return np.concatenate([array[rows], padding])

    changed = {
        name: chosen(array)
        for name, array in case.operands.items()
        if name in BY_ROW and len(array) == full
    }
    changed["rows"] = np.array([len(rows)], np.int32)
    return case.with_operands(**changed).with_integers(capacity=capacity)
