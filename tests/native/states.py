"""State rows of requests, as the kernels on them take them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.native.launches import Array

STATE = np.dtype(
    {
        "names": [
            "pending_token", "consumed", "emitted", "output_limit", "generation", "finished",
            "seed", "temperature", "top_p", "min_p", "top_k", "repetition_penalty",
            "presence_penalty", "frequency_penalty", "min_tokens", "eos_ids",
        ],
        "formats": ["<i4"] * 6 + ["<u8", *["<f4"] * 3, "<i4", *["<f4"] * 3, "<i4", ("<i4", 16)],
        "offsets": [0, 4, 8, 12, 16, 20, 24, *range(32, 68, 4)],
        "itemsize": 128,
    }
)  # fmt: skip


def i32(*values: int) -> NDArray[np.int32]:
    return np.array(values, np.int32)


def states(slots: int) -> Array:
    """State rows of running requests with distinct contents."""
    rows = np.zeros(slots, STATE)
    rows["generation"] = np.arange(slots) + 1
    rows["consumed"] = 10 * np.arange(slots) + 5
    rows["pending_token"] = np.arange(slots) + 100
    rows["output_limit"] = 1000
    rows["top_p"] = 1
    rows["eos_ids"] = -1
    return rows


def state_bytes(rows: Array) -> NDArray[np.uint8]:
    return rows.view(np.uint8).reshape(len(rows), 128)
