"""Projections and embeddings by 8-bit codes with scales, interpreted, against the numpy reference,
and compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from helios.errors import ContractError
from helios.kernels import e4m3
from tests.ignition.cuda.interpreted import WITHOUT_TRITON, compiled, lowered, resources, run
from tests.ignition.cuda.test_model_kernels import check
from tests.native import layer_cases
from tests.native.code_cases import every_code
from tests.native.harness import Case
from tests.native.packings import BF16_FORMAT, F32_FORMAT, Packing, to_bf16

pytest.importorskip("triton", reason=WITHOUT_TRITON)

from ignition.kernels.cuda.scaled_tiles import parts, tile
from tests.ignition.cuda.scaled_variants import VARIANTS

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
    "silu": partial(silu, rows=9, capacity=9, width=64, outputs=96),
    "silu_f32": partial(silu, rows=40, capacity=41, width=192, outputs=40, out_format=F32_FORMAT),
    "silu_many": partial(silu, rows=130, capacity=131, width=144, outputs=72),
    # Reductions in parts: of five blocks and four, of three, with few rows and with many.
    "parts": partial(linear, rows=3, capacity=5, width=1040, outputs=72, bias=1),
    "parts_add": partial(linear, rows=33, capacity=40, width=1536, outputs=64, accumulate=1),
    "parts_many": partial(linear, rows=130, capacity=140, width=1040, outputs=72, bias=1),
    "parts_silu": partial(silu, rows=20, capacity=20, width=1536, outputs=40),
}
PARTS = {"parts": 2, "parts_add": 4, "parts_many": 2, "parts_silu": 4}
PACKINGS = [Packing.ROWS_Q8, Packing.ROWS_FP8]


@pytest.mark.parametrize("packing", PACKINGS, ids=lambda p: p.name)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_those_of_the_reference(name: str, packing: Packing) -> None:
    case = PRODUCTS[name](np.random.default_rng(len(name)), packing)
    check(case, run(case))


EMBEDDINGS = {
    "embed": {"rows": 5, "capacity": 7, "vocab": 43, "width": 64},
    "embed_wide": {"rows": 3, "capacity": 3, "vocab": 9, "width": 1168},
}


def embedding(name: str) -> Case:
    case = layer_cases.embed(np.random.default_rng(3), Packing.ROWS_Q8, **EMBEDDINGS[name])[0]
    case.operands["tokens"][:2] = [-1, EMBEDDINGS[name]["vocab"]]
    return case


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_embeddings_are_those_of_the_reference(name: str) -> None:
    check(embedding(name), run(embedding(name)))
    for kernel in compiled(embedding(name)):
        assert resources(kernel)["STACK"] == 0


@pytest.mark.parametrize("packing", PACKINGS, ids=lambda p: p.name)
def test_every_code_is_the_number_that_it_stands_for(packing: Packing) -> None:
    case = every_code(packing)
    codes = case.operands["weight"][: 256 * 16].reshape(256, 16)[:, 5]
    numbers = codes.view(np.int8) if packing is Packing.ROWS_Q8 else e4m3.VALUES[codes]
    assert (run(case)["out"].reshape(-1) == numbers * np.float32(0.5)).all()


@pytest.mark.parametrize("packing", PACKINGS, ids=lambda p: p.name)
@pytest.mark.parametrize("name", ["many", "silu_many"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_large_tiles_do_what_small_ones_do(variant: str, name: str, packing: Packing) -> None:
    case = PRODUCTS[name](np.random.default_rng(len(name)), packing)
    check(case, run(case, lowering=f"tests.ignition.cuda.scaled_variants:{variant}"))


@pytest.mark.parametrize("name", PARTS)
def test_parts_have_one_order_in_ctas_of_their_own_and_in_one(name: str) -> None:
    """Products of whole numbers are exact in any order, so that only scales are rounded."""
    rng = np.random.default_rng(len(name))
    case = PRODUCTS[name](rng, Packing.ROWS_Q8)
    x = case.operands["x"]
    numbers = rng.integers(-4, 5, x.size // 2).astype(np.float32)
    case = case.with_operands(x=to_bf16(numbers).view(np.uint8).reshape(x.shape))
    outputs = case.integers["outputs"] * (2 if name == "parts_silu" else 1)
    assert parts(outputs, case.integers["width"]) == PARTS[name]
    chosen = run(case)["out"].tobytes()
    for variant in VARIANTS:
        other = run(case, lowering=f"tests.ignition.cuda.scaled_variants:{variant}")
        assert other["out"].tobytes() == chosen, variant
    whole = run(case, lowering="tests.ignition.cuda.scaled_variants:whole")
    assert whole["out"].tobytes() != chosen


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("outputs", [64, 1000, 4096, 6144, 151_936])
def test_every_number_of_rows_has_a_tile_that_fits(outputs: int, fp8: bool) -> None:
    for width in (64, 576, 4096, 14_336):
        for rows in (1, 16, 17, 33, 64, 65, 128, 129, 8192):
            chosen = tile(rows, outputs, width, 132, fp8=fp8)
            assert chosen.count(rows, outputs) * chosen.rows * chosen.outputs >= rows * outputs
            assert chosen.stages * 128 * (chosen.outputs + 2 * chosen.rows) <= 230_000
            assert chosen.rows >= min(rows, 64)
            assert not chosen.apart or (rows <= 128 and parts(outputs, width) > 1)


@pytest.mark.parametrize("width", [16, 384, 1040, 3072, 14_336, 100_000])
def test_no_part_is_empty(width: int) -> None:
    blocks = -(-width // 128)
    for outputs in (16, 576, 4096, 6144, 28_672):
        count = parts(outputs, width)
        assert (count - 1) * -(-blocks // count) < blocks


def test_parts_are_where_few_rows_wait_for_their_chains() -> None:
    assert [parts(*shape) for shape in ((4096, 14_336), (6144, 4096), (1024, 3072))] == [8, 4, 8]
    assert [parts(*shape) for shape in ((28_672, 4096), (6144, 1024), (960, 576))] == [1, 1, 1]


def test_what_a_gpu_has_not_is_refused() -> None:
    case = layer_cases.embed(
        np.random.default_rng(0), Packing.ROWS_FP8, rows=1, capacity=1, vocab=16, width=32
    )[0]
    with pytest.raises(ContractError, match=r"packing is 12\. Embeddings are ROWS_BF16"):
        lowered(case)
    narrow = linear(
        np.random.default_rng(0), Packing.ROWS_Q8, rows=1, capacity=1, width=32, outputs=16
    )
    narrow.integers["width"] = 24
    with pytest.raises(ContractError, match=r"rows of 24 codes"):
        lowered(narrow)


LARGE: dict[str, Build] = {
    "large": partial(linear, rows=1290, capacity=1300, width=144, outputs=1000, accumulate=1),
    "large_silu": partial(silu, rows=1290, capacity=1300, width=144, outputs=1000),
    "medium": partial(linear, rows=500, capacity=512, width=256, outputs=1500, bias=1),
}


@pytest.mark.parametrize("packing", PACKINGS, ids=lambda p: p.name)
@pytest.mark.parametrize("name", [*PRODUCTS, *LARGE])
def test_compiled_products_keep_their_values_in_registers(name: str, packing: Packing) -> None:
    case = (PRODUCTS | LARGE)[name](np.random.default_rng(0), packing)
    for kernel in compiled(case):
        assert resources(kernel)["STACK"] <= 16
