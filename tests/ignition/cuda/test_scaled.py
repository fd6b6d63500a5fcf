"""Projections and embeddings by 8-bit codes with scales, interpreted, against the numpy reference,
and compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from helios.errors import ContractError
from tests.ignition.cuda.interpreted import WITHOUT_TRITON, compiled, lowered, resources, run
from tests.ignition.cuda.test_model_kernels import check
from tests.native import layer_cases
from tests.native.harness import Case
from tests.native.packings import BF16_FORMAT, F32_FORMAT, Packing

pytest.importorskip("triton", reason=WITHOUT_TRITON)

Build = Callable[[np.random.Generator, Packing], Case]


def linear(rng: np.random.Generator, packing: Packing, **extents: int) -> Case:
    case = layer_cases.linear(rng, packing, BF16_FORMAT, **extents)[0]
    if case.integers["accumulate"]:
        return case
    return case.with_operands(out=np.full_like(case.operands["out"], np.nan))


def silu(
    rng: np.random.Generator, packing: Packing, *, out_format: int = BF16_FORMAT, **extents: int
) -> Case:
    return layer_cases.linear_silu_mul(rng, packing, BF16_FORMAT, out_format, **extents)[0]


# Widths of less than a block of scales, of whole ones, and of a part more.
PRODUCTS: dict[str, Build] = {
    "one": partial(linear, rows=1, capacity=1, width=256, outputs=64),
    "narrow": partial(linear, rows=3, capacity=5, width=64, outputs=128),
    "ragged": partial(linear, rows=9, capacity=11, width=208, outputs=331, bias=1),
    "add": partial(linear, rows=17, capacity=19, width=576, outputs=64, bias=1, accumulate=1),
    "sixty": partial(linear, rows=60, capacity=61, width=384, outputs=72, accumulate=1),
    "many": partial(linear, rows=130, capacity=140, width=176, outputs=331, bias=1),
    "tall": partial(linear, rows=1290, capacity=1300, width=144, outputs=1000),
    "silu": partial(silu, rows=9, capacity=9, width=64, outputs=96),
    "silu_f32": partial(silu, rows=40, capacity=41, width=192, outputs=40, out_format=F32_FORMAT),
    "silu_tall": partial(silu, rows=1270, capacity=1300, width=144, outputs=520),
}
PACKINGS = [Packing.ROWS_Q8, Packing.ROWS_FP8]


@pytest.mark.parametrize("packing", PACKINGS, ids=lambda p: p.name)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_those_of_the_reference(name: str, packing: Packing) -> None:
    case = PRODUCTS[name](np.random.default_rng(len(name)), packing)
    check(case, run(case))


@pytest.mark.parametrize("packing", PACKINGS, ids=lambda p: p.name)
@pytest.mark.parametrize("name", PRODUCTS)
def test_compiled_products_keep_their_values_in_registers(name: str, packing: Packing) -> None:
    for kernel in compiled(PRODUCTS[name](np.random.default_rng(0), packing)):
        assert resources(kernel)["STACK"] <= 16
