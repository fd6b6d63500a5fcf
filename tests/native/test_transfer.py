"""The kernels that copy pages and rows: what is copied, what isn't, and in which order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.native import request_cases
from tests.native.harness import INSTRUCTION_SETS, Case, run
from tests.native.states import i32

ISA = INSTRUCTION_SETS[0]
F16 = 7
PAGE_TOKENS = 16


def page_copy(kernel: str, *, capacity: int = 4) -> Case:
    return request_cases.page_copy(
        np.random.default_rng(0), kernel, rows=capacity, capacity=capacity, elements=50, dtype=F16
    ).with_operands(
        page_table=i32(*range(3, 12), 2, 1, 0).reshape(4, 3),
        slot=i32(0, 1, 2, 3),
        endpoint=i32(1, 17, 47, 20),
        row=i32(4, 0, 1, 2),
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_save_page_copies_the_page_that_holds_the_endpoint(threads: int) -> None:
    case = page_copy("save_page")
    plane, expected = case.operands["plane"], case.operands["saved"].copy()
    expected[[4, 0, 1, 2]] = plane[[3, 7, 11, 1]]
    got = run(case, ISA, threads=threads)
    assert got["saved"].tobytes() == expected.tobytes()
    assert got["plane"].tobytes() == plane.tobytes()


@pytest.mark.parametrize("threads", [1, 3])
def test_load_page_is_its_inverse(threads: int) -> None:
    case = page_copy("load_page")
    saved, expected = case.operands["saved"], case.operands["plane"].copy()
    expected[[3, 7, 11, 1]] = saved[[4, 0, 1, 2]]
    got = run(case, ISA, threads=threads)
    assert got["plane"].tobytes() == expected.tobytes()
    assert got["saved"].tobytes() == saved.tobytes()


@pytest.mark.parametrize("kernel", ["save_page", "load_page"])
@pytest.mark.parametrize(
    ("operand", "value"),
    [
        ("endpoint", 0),
        ("endpoint", 16),  # a whole number of pages: nothing is left over
        ("endpoint", 32),
        ("endpoint", 49),  # past the table
        ("endpoint", -3),
        ("slot", -1),
        ("slot", 4),
        ("row", -1),
        ("row", 5),
        ("page_table", -1),
        ("page_table", 12),
    ],
)
def test_a_lane_without_a_place_copies_nothing(kernel: str, operand: str, value: int) -> None:
    case = page_copy(kernel)
    others = page_copy(kernel).with_operands(slot=i32(0, -1, 2, 3))
    if operand == "page_table":
        case.operands[operand][1, 1] = value
    else:
        case.operands[operand][1] = value
    got, expected = run(case, ISA), run(others, ISA)
    for written in ("plane", "saved"):
        assert got[written].tobytes() == expected[written].tobytes()


def copied(source: list[int], destination: list[int], threads: int = 2) -> tuple[list[int], Case]:
    """Which old row each row of the buffer holds now; −1 is zeros."""
    case = request_cases.copy_rows(
        np.random.default_rng(1), rows=len(source), capacity=len(source), elements=70,
        dtype=F16, count=5,
    ).with_operands(source=i32(*source), destination=i32(*destination))  # fmt: skip
    before = [row.tobytes() for row in case.operands["buffer"]]
    after = [row.tobytes() for row in run(case, ISA, threads=threads)["buffer"]]
    return [-1 if not any(row) else before.index(row) for row in after], case


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_copy_rows_copies_in_order(threads: int) -> None:
    assert copied([0, 1, 4], [1, 2, 0], threads)[0] == [4, 0, 0, 3, 4]


def test_copy_rows_fills_with_zeros_where_there_is_no_source() -> None:
    assert copied([-1, 5, 3], [0, 2, 1])[0] == [-1, 3, -1, 3, 4]


def test_copy_rows_leaves_alone_what_has_no_destination() -> None:
    assert copied([0, 1, 2], [-1, 5, 2])[0] == [0, 1, 2, 3, 4]
