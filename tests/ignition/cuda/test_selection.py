"""Kernels that choose rows, interpreted, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ignition.cuda.checked import check, check_compiles
from tests.ignition.cuda.interpreted import WITHOUT_TRITON
from tests.native import request_cases
from tests.native.random_lanes import attending, live, selected

pytest.importorskip("triton", reason=WITHOUT_TRITON)

SEEDS = range(8)


@pytest.mark.parametrize("rows", [-(2**31), -3, 0, 1, 7, 8, 32, 40, 2**31 - 1])
@pytest.mark.parametrize(("start", "limit"), [(0, 40), (0, 1), (7, 9), (32, 3), (40, 4)])
def test_slices(rows, start, limit):
    check(request_cases.slice_rows(rows=rows, capacity=32, start=start, limit=limit))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("capacity", "packed", "width"), [(1, 1, 16), (3, 20, 7), (9, 30, 1040), (130, 300, 5)]
)
def test_last_rows_of_lanes_that_sample(capacity, packed, width, seed):
    rng = np.random.default_rng([seed, capacity])
    check(live(rng, selected(rng, capacity, packed, width)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("capacity", "packed", "width", "elements", "dtype"),
    [(1, 1, 16, 32, 7), (3, 20, 7, 5, 7), (9, 30, 1040, 2080, 7), (130, 300, 5, 3, 9),
     (5, 30, 2048, 1025, 1)],
)  # fmt: skip
def test_last_rows_that_have_yet_to_attend(capacity, packed, width, elements, dtype, seed):
    rng = np.random.default_rng([seed, capacity])
    check(live(rng, attending(rng, capacity, packed, width, elements, dtype)))


def test_kernels_compile():
    rng = np.random.default_rng(0)
    check_compiles(request_cases.slice_rows(rows=1, capacity=2, start=0, limit=2))
    check_compiles(selected(rng, 3, 20, 48))
    check_compiles(selected(rng, 3, 20, 7))
    check_compiles(attending(rng, 3, 20, 48, 64, 7))
    check_compiles(attending(rng, 3, 20, 7, 5, 7))
