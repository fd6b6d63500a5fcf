"""Launches of `sample` whose lanes ask for different things."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.native import request_cases
from tests.native.launches import Case
from tests.native.states import STATE

PARAMETERS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.7, "min_p": 0.05},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 1.3, "top_k": 50},
    {"temperature": 1.3, "top_k": 1000},
    {"temperature": 1.3, "top_k": 2**31 - 1},
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 5.0, "top_p": 0.999},
    {"temperature": 1.0, "top_p": 0.0},
    {"temperature": 1.0, "top_k": 40, "top_p": 0.8, "min_p": 0.02},
    {"temperature": 1.0, "top_k": 40, "top_p": 0.8, "min_p": 1.0},
]


def every_parameter(seed: int, vocab: int, **given: float) -> Case:
    """A launch whose lanes sample with different parameters."""
    rng = np.random.default_rng([seed, vocab])
    lanes = len(PARAMETERS)
    case = request_cases.sample(rng, rows=lanes, capacity=lanes, vocab=vocab, stride=vocab + 3)
    state = case.operands["state"].view(STATE).reshape(-1)
    for row, parameters in zip(state, PARAMETERS, strict=True):
        for name, value in (parameters | given).items():
            row[name] = value
    return case
