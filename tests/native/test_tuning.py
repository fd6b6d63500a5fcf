"""Blockings: each gives the same bits; the tune_* kernels pick one of them and touch no more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from helios import _native
from helios.kernels.catalogue import BLOCKINGS, BY_NAME
from tests.native import layer_cases
from tests.native.harness import (
    INSTRUCTION_SETS,
    Array,
    Case,
    GuardedArray,
    Placement,
    add_program,
    run,
)
from tests.native.packings import (
    F32_FORMAT,
    FORMATS,
    Q8_FORMAT,
    TILED,
    Packing,
    random_packed,
    row_nbytes,
)
from tests.native.states import i32

PRODUCTS = [
    (packing, format_) for packing in TILED for format_ in layer_cases.activation_formats(packing)
]
# Fewer and more than a block of rows, and more than the widest panel.
ROWS = (1, 3, 23, 150)
# What names no blocking is the default.
NONE_OF_THEM = (-1, BLOCKINGS, 2**31 - 1)
Build = Callable[[np.random.Generator, Packing, int, int], Case]


def linear(rng: np.random.Generator, packing: Packing, format_: int, rows: int) -> Case:
    return layer_cases.linear(
        rng, packing, format_, rows=rows, capacity=rows, width=128, outputs=151, bias=True,
        accumulate=True,
    )[0]  # fmt: skip


def silu(rng: np.random.Generator, packing: Packing, format_: int, rows: int) -> Case:
    return layer_cases.linear_silu_mul(
        rng, packing, format_, Q8_FORMAT, rows=rows, capacity=rows, width=128, outputs=96
    )[0]


def tuned(case: Case, choice: int) -> Case:
    operands = {**case.operands, "tuning": i32(choice)}
    return Case(f"{case.kernel}_tuned", operands, case.integers, case.floats)


@pytest.mark.clause("BOOT-10")
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("packing", "format_"), PRODUCTS)
@pytest.mark.parametrize("build", [linear, silu])
def test_every_blocking_gives_the_same_bits(
    build: Build, packing: Packing, format_: int, rows: int, instruction_set: str
) -> None:
    case = build(np.random.default_rng(rows), packing, format_, rows)
    expected = run(case, instruction_set)["out"].tobytes()
    assert expected != case.operands["out"].tobytes()
    for choice in (*range(BLOCKINGS), *NONE_OF_THEM):
        got = run(tuned(case, choice), instruction_set)["out"]
        assert got.tobytes() == expected, choice


def tuning_case(kernel: str, packing: Packing, format_: int, *, rows: int = 7) -> Case:
    width, outputs = 64, 144
    silu_mul = kernel == "tune_linear_silu_mul"
    rng = np.random.default_rng(rows)
    matrix = random_packed(rng, packing, outputs * (2 if silu_mul else 1), width)
    out_format = Q8_FORMAT if silu_mul else F32_FORMAT
    if silu_mul:
        outputs = 128
        matrix = random_packed(rng, packing, 2 * outputs, width)
    operands: dict[str, Array] = {
        "x": np.full((rows, row_nbytes(format_, width)), 7, np.uint8),
        "weight": matrix.data,
        "out": np.full((rows, row_nbytes(out_format, outputs)), 7, np.uint8),
        "choice": i32(-77),
    }
    attributes = {
        "capacity": rows,
        "width": width,
        "outputs": outputs,
        "packing": packing,
        "format": format_,
    }
    if silu_mul:
        attributes["out_format"] = out_format
    return Case(kernel, operands, attributes)


KERNELS = ("tune_linear", "tune_linear_silu_mul")


@pytest.mark.clause("BOOT-10")
@pytest.mark.parametrize("placement", Placement)
@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize(("packing", "format_"), PRODUCTS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_blocking_is_picked_and_nothing_else_is_touched(
    kernel: str, packing: Packing, format_: int, instruction_set: str, placement: Placement
) -> None:
    case = tuning_case(kernel, packing, format_)
    first = run(case, instruction_set, placement=placement)
    assert 0 <= int(first["choice"][0]) < BLOCKINGS
    assert first["weight"].tobytes() == case.operands["weight"].tobytes()
    # What it measured is a product of activations of its own making, the same ones each time.
    second = run(case, instruction_set, placement=placement)
    for operand in ("x", "out"):
        assert first[operand].tobytes() == second[operand].tobytes()
        assert first[operand].tobytes() != case.operands[operand].tobytes()


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_what_was_measured_is_the_product(instruction_set: str) -> None:
    case = tuning_case("tune_linear", Packing.TILE16_F32, F32_FORMAT)
    after = run(case, instruction_set)
    x = after["x"].view(np.float32).reshape(7, 64)
    assert len(np.unique(x)) > 100
    plain = Case(
        "linear",
        {"rows": i32(7), "x": after["x"], "weight": case.operands["weight"],
         "out": np.zeros_like(after["out"])},
        {**case.integers, "accumulate": 0},
    )  # fmt: skip
    assert run(plain, instruction_set)["out"].tobytes() == after["out"].tobytes()


@pytest.mark.parametrize("kernel", KERNELS)
def test_short_and_absent_operands_are_refused(kernel: str) -> None:
    case = tuning_case(kernel, Packing.TILE16_Q8_0, Q8_FORMAT)
    memory = {o: GuardedArray(a, Placement.BEFORE_GUARD) for o, a in case.operands.items()}
    replayer = _native.Replayer(1, INSTRUCTION_SETS[0])
    for spec in BY_NAME[kernel].operands:
        spans = {o: (guarded.address, guarded.nbytes) for o, guarded in memory.items()}
        address, nbytes = spans[spec.name]
        spans[spec.name] = (address, nbytes - 1)
        with pytest.raises(ValueError, match=rf'"{spec.name}" needs {nbytes} bytes'):
            add_program(replayer, [(kernel, spans, case.integers, case.floats)])
        del spans[spec.name]
        with pytest.raises(ValueError, match=f'"{spec.name}" is absent but needed'):
            add_program(replayer, [(kernel, spans, case.integers, case.floats)])
    replayer.close()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "attributes", [{"capacity": 0}, {"width": 48}, {"format": F32_FORMAT}, {"packing": 1}]
)
def test_impossible_attributes_are_refused(kernel: str, attributes: dict[str, int]) -> None:
    case = tuning_case(kernel, Packing.TILE16_Q8_0, Q8_FORMAT).with_integers(**attributes)
    with pytest.raises(ValueError, match="attribute"):
        run(case, INSTRUCTION_SETS[0])


def test_formats_are_covered() -> None:
    assert {format_ for _, format_ in PRODUCTS} == set(FORMATS)
