"""Trials of projections by 8-bit codes with scales, and of the embedding; as `model_trials`."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from tests.gpu.model_trials import MODELS, Model, linear, projection, silu
from tests.gpu.trials import Build, Trial, alone, companies, in_company
from tests.native import layer_cases
from tests.native.code_cases import every_code, with_codes
from tests.native.packings import BF16_FORMAT, F32_FORMAT, Packing

_PACKINGS: Final = {"int8": Packing.ROWS_Q8, "fp8": Packing.ROWS_FP8}
_MODELS: Final = ("tiny", "135M", "8B")
# A size a tile, and one that fills large tiles.
_SIZES: Final = (1, 16, 30, 64, 200, 2048)
_ROWS: Final = 70


def _linear(
    rng: np.random.Generator, packing: Packing, width: int, outputs: int, *, accumulate: bool
) -> Trial:
    case = linear(rng, width, outputs, bias=True, accumulate=accumulate, rows=_ROWS)
    return projection(rng, with_codes(rng, case, packing, outputs), _SIZES)


def _silu(
    rng: np.random.Generator, packing: Packing, width: int, outputs: int, out_format: int
) -> Trial:
    case = silu(rng, width, outputs, out_format, rows=_ROWS)
    return projection(rng, with_codes(rng, case, packing, 2 * outputs), _SIZES)


def _layer(name: str, model: Model, packing: Packing) -> dict[str, Build]:
    attended = model.q_heads * model.head_dim
    joint = attended + 2 * model.kv_heads * model.head_dim
    product = partial(_linear, packing=packing)
    return {
        f"{name} qkv": partial(product, width=model.hidden, outputs=joint, accumulate=False),
        f"{name} down": partial(
            product, width=model.intermediate, outputs=model.hidden, accumulate=True
        ),
        f"{name} gate_up": partial(
            _silu,
            packing=packing,
            width=model.hidden,
            outputs=model.intermediate,
            out_format=BF16_FORMAT,
        ),
    }


def _embedding(rng: np.random.Generator, width: int) -> Trial:
    case = layer_cases.embed(rng, Packing.ROWS_Q8, rows=40, capacity=40, vocab=43, width=width)[0]
    case.operands["tokens"][:4] = [-1, 43, 2**31 - 1, -(2**31)]
    case.operands["out"][...] = np.nan
    return in_company(case, ["out"], companies(rng, 40, [3, 17, 90]))


def trials() -> dict[str, Build]:
    """All of them by name."""
    found: dict[str, Build] = {}
    for word, packing in _PACKINGS.items():
        layers: dict[str, Build] = {}
        for name in _MODELS:
            layers |= _layer(name, MODELS[name], packing)
        layers["ragged"] = partial(
            _linear, packing=packing, width=208, outputs=331, accumulate=True
        )
        layers["gate_up f32"] = partial(
            _silu, packing=packing, width=144, outputs=200, out_format=F32_FORMAT
        )
        found |= {f"projection {word} {name}": build for name, build in layers.items()}
        found[f"projection {word} codes"] = lambda _, packing=packing: alone(every_code(packing))
    for name in _MODELS:
        found[f"embed int8 {name}"] = partial(_embedding, width=MODELS[name].hidden)
    return found
