"""Copies of pages and rows, interpreted, against the reference's, which are made in order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ignition.cuda.checked import check, check_compiles
from tests.ignition.cuda.interpreted import WITHOUT_TRITON, lowered
from tests.native import request_cases
from tests.native.random_lanes import hostile, live
from tests.native.states import i32

pytest.importorskip("triton", reason=WITHOUT_TRITON)

SEEDS = range(6)
F16 = 7
# Elements by type: rows that are copied by words of 32 bits and rows that aren't.
ROWS = [(F16, 96), (F16, 4160), (F16, 77), (1, 64), (1, 30), (9, 48), (9, 5), (6, 24), (6, 3)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("dtype", "elements"), ROWS)
@pytest.mark.parametrize("kernel", ["save_page", "load_page"])
def test_pages(kernel, dtype, elements, seed):
    # With 4 slots and 5 saved rows, several of more lanes copy to the same place.
    rng = np.random.default_rng([seed, elements])
    capacity = int(rng.choice([1, 3, 7, 40]))
    case = request_cases.page_copy(
        rng, kernel, rows=capacity, capacity=capacity, elements=elements, dtype=dtype
    )
    check(live(rng, hostile(rng, case, ("slot", "endpoint", "row", "page_table"))))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("dtype", "elements"), ROWS)
def test_rows(dtype, elements, seed):
    rng = np.random.default_rng([seed, elements])
    case = request_cases.copy_rows(
        rng, rows=12, capacity=12, elements=elements, dtype=dtype, count=6
    )
    check(live(rng, hostile(rng, case, ("source", "destination"))))


def test_a_row_may_be_what_an_earlier_copy_wrote():
    case = request_cases.copy_rows(
        np.random.default_rng(1), rows=4, capacity=4, elements=96, dtype=F16, count=5
    ).with_operands(source=i32(0, 1, 2, -1), destination=i32(1, 2, 3, 0))
    after = check(case)["buffer"]
    assert {row.tobytes() for row in after[1:4]} == {case.operands["buffer"][0].tobytes()}
    assert not any(after[0].tobytes())


def test_a_page_is_shared_out_among_many_programs():
    # A page of 8 heads of 128, 64 tokens, f16: 128 KiB.
    case = request_cases.page_copy(
        np.random.default_rng(2), "save_page", rows=3, capacity=3, elements=8 * 64 * 128, dtype=F16
    )
    (kernel,) = lowered(case)
    assert kernel.grid == (16, 3, 1)
    assert kernel.request.multiples_of_16 == {"words"}


def test_kernels_compile():
    rng = np.random.default_rng(0)
    for elements in (96, 77):
        extents = {"rows": 2, "capacity": 2, "elements": elements, "dtype": F16}
        for kernel in ("save_page", "load_page"):
            check_compiles(request_cases.page_copy(rng, kernel, **extents))
        check_compiles(request_cases.copy_rows(rng, count=5, **extents))
