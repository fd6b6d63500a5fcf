"""Trials of matrices of 8-bit codes with scales: projections in programs of every size, and the
embedding."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from tests.gpu.model_trials import MODELS, projection
from tests.gpu.trials import Build, Trial, companies, in_company
from tests.native import layer_cases
from tests.native.packings import BF16_FORMAT, F32_FORMAT, Packing

_PACKINGS: Final = (Packing.ROWS_Q8, Packing.ROWS_FP8)
_SIZES: Final = (3, 8, 32, 128, 512)
_ROWS: Final = 70
# Inputs, outputs: less than a block of scales, ragged ones, and those of layers.
_SMALL: Final = ((64, 128), (208, 331), (176, 72))
_LARGE: Final = ("135M", "8B")


def _linear(
    rng: np.random.Generator, packing: Packing, width: int, outputs: int, add: bool
) -> Trial:
    case = layer_cases.linear(
        rng, packing, BF16_FORMAT, rows=_ROWS, capacity=_ROWS, width=width, outputs=outputs,
        bias=not add, accumulate=add,
    )[0]  # fmt: skip
    if not add:
        case = case.with_operands(out=np.full_like(case.operands["out"], np.nan))
    return projection(rng, case, _SIZES)


def _silu(
    rng: np.random.Generator, packing: Packing, width: int, outputs: int, format_: int
) -> Trial:
    case = layer_cases.linear_silu_mul(
        rng, packing, BF16_FORMAT, format_, rows=_ROWS, capacity=_ROWS, width=width,
        outputs=outputs,
    )[0]  # fmt: skip
    return projection(rng, case, _SIZES)


def _embedding(rng: np.random.Generator, width: int) -> Trial:
    case = layer_cases.embed(
        rng, Packing.ROWS_Q8, rows=40, capacity=40, vocab=43, width=width
    )[0]  # fmt: skip
    case.operands["tokens"][:4] = [-1, 43, 2**31 - 1, -(2**31)]
    case = case.with_operands(out=np.full_like(case.operands["out"], np.nan))
    return in_company(case, ["out"], companies(rng, 40, [3, 17, 90]))


def trials() -> dict[str, Build]:
    """All of them by name."""
    found: dict[str, Build] = {}
    for packing in _PACKINGS:
        name = f"scaled {packing.name}"
        for width, outputs in _SMALL:
            found[f"{name} {width}x{outputs}"] = partial(
                _linear, packing=packing, width=width, outputs=outputs, add=outputs == 72
            )
        found[f"{name} gate_up f32"] = partial(
            _silu, packing=packing, width=192, outputs=40, format_=F32_FORMAT
        )
        for model in _LARGE:
            hidden, inner = MODELS[model].hidden, MODELS[model].intermediate
            found[f"{name} {model} output"] = partial(
                _linear, packing=packing, width=hidden, outputs=hidden, add=True
            )
            if model != "8B":
                found[f"{name} {model} gate_up"] = partial(
                    _silu, packing=packing, width=hidden, outputs=inner, format_=BF16_FORMAT
                )
    for width in (64, 1168):
        found[f"scaled embed {width}"] = partial(_embedding, width=width)
    return found
