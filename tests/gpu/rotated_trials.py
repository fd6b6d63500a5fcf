"""Trials of projections of many rows that rotate what they make: the bits of two launches.

Every tile that one has, with as many live rows as end at its edges and beside them, and rows of
which nothing is stored, or no cache cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from tests.gpu.model_trials import MODELS
from tests.gpu.trials import Build, Run, SameBits, Trial
from tests.native.launches import Case
from tests.native.rotated_cases import rotated_projection
from tests.native.states import i32

# A model's name and rows that there is room for, by the outputs of the tile that they have.
SIZES: Final = {
    "8B 256": ("8B", 515),
    "135M 128": ("135M", 1300),
    "135M 256": ("135M", 2570),
    "qwen2 128": ("qwen2", 1300),
}
INPUTS: Final[Mapping[str, Mapping[str, bool]]] = {
    "plain": {},
    "bias": {"bias": True},
    "weighed": {"weighed": True},
    "weighed bias": {"weighed": True, "bias": True},
}
_LIVE: Final = (0, 1, 127, 128, 129)


def _trial(rng: np.random.Generator, model: str, rows: int, **inputs: Any) -> Trial:
    at = MODELS[model]
    heads = {"q_heads": at.q_heads, "kv_heads": at.kv_heads, "head_dim": at.head_dim}
    pair = rotated_projection(
        rng, rows=rows - 1, capacity=rows, width=at.hidden, exact=False, **heads, **inputs
    )
    runs: dict[str, Run] = {}
    same = []
    for live in (*_LIVE, rows - 1):
        cases = _of(pair, live)
        apart, together = f"{live} apart", f"{live} together"
        runs[apart] = Run(cases, reference=False)
        qkv = cases[1].operands["qkv"]
        runs[together] = Run(cases, fused=True, reference=False, unread=(qkv,))
        same += [
            SameBits(together, name, ..., ..., base=apart)
            for name in ("queries", "k_plane", "v_plane")
        ]
    return Trial(runs, same)


def _of(pair: Sequence[Case], live: int) -> tuple[Case, ...]:
    """The launches over so many live rows."""
    rows = i32(live)
    return tuple(case.with_operands(rows=rows) for case in pair)


def trials() -> dict[str, Build]:
    """All of them by name."""
    return {
        f"rotated projection {size} {name}": partial(_trial, model=model, rows=rows, **inputs)
        for size, (model, rows) in SIZES.items()
        for name, inputs in INPUTS.items()
    }
