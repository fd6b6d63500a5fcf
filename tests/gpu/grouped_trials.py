"""Trials of `project_in_groups`: each epilogue on both heights of tiles, sizes that fill no tile.

The launch is held against the reference; so are launches of fewer live rows in the same program,
none and up to the edges of tiles, and its rows have the same bits there and in small programs,
which other kernels compute.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from tests.gpu.model_trials import linear, silu, weighed
from tests.gpu.trials import Build, Company, Trial, in_company
from tests.native.launches import Case
from tests.native.packings import BF16_FORMAT, F32_FORMAT

# Rows and outputs by the height of the tiles that they have; 24 blocks of inputs and a piece.
SIZES: Final = {64: (1000, 2080), 128: (2056, 1040)}
WIDTH: Final = 24 * 64 + 8
_LIVE: Final = (0, 1, 63, 64, 65, 127, 128, 129, 300)
_SMALL: Final = (3, 96)

Product = Callable[[np.random.Generator, int, int], Case]


def _linear(
    rng: np.random.Generator, rows: int, outputs: int, *, bias: bool, accumulate: bool
) -> Case:
    return linear(rng, WIDTH, outputs, bias=bias, accumulate=accumulate, rows=rows)


def _silu(rng: np.random.Generator, rows: int, outputs: int, *, out_format: int) -> Case:
    return silu(rng, WIDTH, outputs // 2, out_format, rows=rows)


def _weighed(rng: np.random.Generator, rows: int, outputs: int, *, gated: bool) -> Case:
    if gated:
        case = silu(rng, WIDTH, outputs // 2, BF16_FORMAT, rows=rows)
    else:
        case = linear(rng, WIDTH, outputs, bias=True, accumulate=False, rows=rows)
    return weighed(rng, case, whole=True)


PRODUCTS: Final[dict[str, Product]] = {
    "weighed": partial(_weighed, gated=False),
    "gate_up weighed": partial(_weighed, gated=True),
    "f32": partial(_linear, bias=False, accumulate=False),
    "f32 bias": partial(_linear, bias=True, accumulate=False),
    "added": partial(_linear, bias=False, accumulate=True),
    "added bias": partial(_linear, bias=True, accumulate=True),
    "gate_up": partial(_silu, out_format=BF16_FORMAT),
    "gate_up f32": partial(_silu, out_format=F32_FORMAT),
}


def _trial(rng: np.random.Generator, product: Product, rows: int, outputs: int) -> Trial:
    case = product(rng, rows, outputs)
    company = [Company(rng.choice(rows, live).tolist(), rows) for live in _LIVE]
    company += [Company(rng.choice(rows, count).tolist(), count) for count in _SMALL]
    return in_company(case, ["out"], company)


def trials() -> dict[str, Build]:
    """All of them by name."""
    return {
        f"projection groups {height} {name}": partial(
            _trial, product=product, rows=rows, outputs=outputs
        )
        for height, (rows, outputs) in SIZES.items()
        for name, product in PRODUCTS.items()
    }
