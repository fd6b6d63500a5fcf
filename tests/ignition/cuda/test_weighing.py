"""Rows that are weighed before a product and normalised after it."""

from __future__ import annotations

import numpy as np
import pytest

from helios.errors import ContractError
from tests.ignition.cuda.interpreted import WITHOUT_TRITON, compiled, fused, lowered, run, run_fused
from tests.ignition.cuda.test_fused_kernels import one_by_one
from tests.ignition.cuda.test_model_kernels import check, linear, silu
from tests.native import cuda_cases
from tests.native.harness import Case
from tests.native.packings import Packing

pytest.importorskip("triton", reason=WITHOUT_TRITON)

# Rows, capacity, width, outputs, columns of a block: one for each kernel that projects.
SHAPES = {
    "project_narrow": (5, 7, 576, 96, 16),
    "project_narrow, parts": (3, 4, 3072, 64, 64),
    "project_few": (3, 5, 704, 3072, 64),
    "project_many": (19, 33, 2048, 1032, 64),
    "project_many, rows first": (70, 131, 96, 331, 16),
}


def product(name: str, *, gated: bool = False) -> tuple[Case, Case]:
    """Rows that are weighed, and their projection."""
    rows, capacity, width, outputs, block = SHAPES[name]
    rng = np.random.default_rng(len(name))
    weighing = cuda_cases.weigh(rng, rows=rows, capacity=capacity, width=width, block=block)
    extents = {"rows": rows, "capacity": capacity, "width": width}
    case = (
        silu(rng, outputs=outputs // 8 * 8, **extents)
        if gated
        else linear(rng, outputs=outputs, bias=1, **extents)
    )
    return weighing, cuda_cases.weighed(case, weighing)


WEIGHED = {
    "whole": {"rows": 3, "capacity": 5, "width": 64, "block": 64, "whole": True},
    "blocks": {"rows": 4, "capacity": 4, "width": 576, "block": 16},
    "ragged": {"rows": 6, "capacity": 6, "width": 1160, "block": 64},
    "many": {"rows": 130, "capacity": 131, "width": 96, "block": 16, "whole": True},
}


@pytest.mark.parametrize("name", WEIGHED)
def test_rows_are_weighed_as_the_reference_does(name: str) -> None:
    case = cuda_cases.weigh(np.random.default_rng(3), **WEIGHED[name])
    check(case, run(case))
    assert all(kernel.parameters for kernel in compiled(case))


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_products_of_weighed_rows_are_normalised(name: str, gated: bool) -> None:
    weighing, case = product(name, gated=gated)
    case = case.with_operands(x=run(weighing)["out"], squares=run(weighing)["squares"])
    if not gated:
        assert lowered(case)[0].request.function.__name__ == name.partition(",")[0]
    check(case, run(case))


@pytest.mark.parametrize("name", ["project_narrow", "project_many, rows first"])
def test_whoever_adds_the_blocks_changes_no_bit(name: str) -> None:
    rows, capacity, width, _, _ = SHAPES[name]
    _, case = product(name)
    found = set()
    for whole in (False, True):
        weighing = cuda_cases.weigh(
            np.random.default_rng(1), rows=rows, capacity=capacity, width=width, block=16,
            whole=whole,
        )  # fmt: skip
        after = run(weighing)
        given = {"x": after["out"], "squares": after["squares"]}
        blocks = weighing.integers["blocks"]
        found.add(run(case.with_operands(**given).with_integers(blocks=blocks))["out"].tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("name", SHAPES)
def test_a_row_has_its_bits_in_any_company(name: str) -> None:
    """Alone it goes through a kernel for few rows; where many have room, its squares are one sum.
    Its neighbours are of any size."""
    rows, capacity, width, outputs, block = SHAPES[name]
    rng = np.random.default_rng(len(name))
    scales = np.array([1, 0, 1e-18, 1e14, 1e-40, 1e4], np.float32)
    weighing = cuda_cases.weigh(
        rng, rows=rows, capacity=capacity, width=width, block=block, whole=capacity > 128
    )
    x = weighing.operands["x"].copy()
    x[:rows] *= scales[np.arange(rows) % len(scales), None]
    case = linear(rng, outputs=outputs, bias=1, rows=rows, capacity=capacity, width=width)
    after = run(weighing.with_operands(x=x))
    given = {"x": after["out"], "squares": after["squares"]}
    together = run(cuda_cases.weighed(case, weighing).with_operands(**given))["out"]
    same = {name: case.operands[name] for name in ("weight", "bias")}
    apart = []
    for row in range(min(rows, len(scales))):
        weighing_one = cuda_cases.weigh(rng, rows=1, capacity=1, width=width, block=block)
        one = linear(rng, outputs=outputs, bias=1, rows=1, capacity=1, width=width)
        weight = weighing.operands["weight"]
        after = run(weighing_one.with_operands(x=x[row : row + 1], weight=weight))
        given = {"x": after["out"], "squares": after["squares"]}
        apart.append(run(cuda_cases.weighed(one, weighing_one).with_operands(**given, **same)))
    assert np.isfinite(together[:rows]).all()
    for row, alone in enumerate(apart):
        assert alone["out"][0].tobytes() == together[row].tobytes(), row


ADDED = {
    "narrow": {"rows": 5, "capacity": 7, "width": 96, "outputs": 576, "block": 16},
    "narrow, parts": {"rows": 5, "capacity": 7, "width": 3072, "outputs": 320, "block": 16},
    "few, parts": {"rows": 9, "capacity": 9, "width": 3072, "outputs": 1024, "block": 16},
    "many": {"rows": 9, "capacity": 17, "width": 2048, "outputs": 1088, "block": 64},
}


def added(name: str) -> list[Case]:
    """A projection that is added to rows, and their weighing."""
    extents = dict(ADDED[name])
    block = extents.pop("block")
    rng = np.random.default_rng(len(name))
    case = linear(rng, bias=1, accumulate=1, **extents)
    weighing = cuda_cases.weigh(
        rng, rows=extents["rows"], capacity=extents["capacity"], width=extents["outputs"],
        block=block,
    )  # fmt: skip
    shared = {"rows": case.operands["rows"], "x": case.operands["out"]}
    return [case, weighing.with_operands(**shared)]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", ADDED)
def test_rows_are_weighed_where_they_are_made(name: str, descending: bool) -> None:
    cases = added(name)
    kernels = fused(cases)
    assert kernels is not None
    assert len(kernels) == 1
    alone = one_by_one(cases)[-1]
    together = run_fused(cases, descending=descending)[-1]
    for operand in ("x", "out", "squares"):
        assert together[operand].tobytes() == alone[operand].tobytes(), operand


def test_what_isnt_made_of_whole_blocks_is_weighed_apart() -> None:
    product, weighing = added("narrow")
    assert fused([product, weighing.with_integers(block=64, blocks=9)]) is None
    assert fused([product, weighing.with_integers(blocks=1)]) is None
    other = np.zeros_like(weighing.operands["x"])
    assert fused([product, weighing.with_operands(x=other)]) is None
    assert fused([product.with_integers(accumulate=0), weighing]) is None


@pytest.mark.parametrize("name", ADDED)
def test_the_fused_launch_compiles(name: str) -> None:
    assert compiled_fused(added(name)).parameters


def compiled_fused(cases: list[Case]):
    from ignition.kernels.cuda.compile import compile

    kernels = fused(cases)
    assert kernels is not None
    return compile(kernels[0].request)


def test_weighed_rows_are_refused_by_matrices_of_codes() -> None:
    _, case = product("project_narrow")
    with pytest.raises(ContractError, match=r"Rows are weighed for ROWS_BF16"):
        lowered(case.with_integers(packing=int(Packing.ROWS_Q8)))
