"""Kernels on request state, interpreted, against the reference on random rounds."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ignition.cuda.checked import check, check_compiles
from tests.ignition.cuda.interpreted import WITHOUT_TRITON
from tests.native import request_cases
from tests.native.launches import Case
from tests.native.random_lanes import committed, distinct_slots, live, pending, scattered
from tests.native.states import i32

pytest.importorskip("triton", reason=WITHOUT_TRITON)

SEEDS = range(8)
# Below a warp's lanes, its number, and more than one program's.
CAPACITIES = [1, 5, 32, 70]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("capacity", "size"), [(1, 4), (7, 7), (64, 300), (200, 40)])
def test_scatter_with_indices_that_repeat(capacity, size, seed):
    rng = np.random.default_rng([seed, capacity])
    check(live(rng, scattered(rng, capacity, size)))


def test_scatter_by_several_programs():
    rng = np.random.default_rng(1)
    case = scattered(rng, 200, 700)
    many = {"capacity": 100_000}
    padded = {name: np.resize(case.operands[name], 100_000) for name in ("index", "value")}
    check(Case("scatter_i32", {**case.operands, **padded, "rows": i32(200)}, many))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_admission(capacity, seed):
    rng = np.random.default_rng([seed, capacity])
    case = request_cases.initialize_requests(rng, rows=capacity, capacity=capacity)
    case.operands["temperature"].view(np.uint32)[0] = 0x7FA00001  # a NaN keeps its bits
    check(live(rng, distinct_slots(rng, case, capacity)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("kernel", ["load_pending", "set_pending"])
def test_pending_tokens(kernel, capacity, seed):
    rng = np.random.default_rng([seed, capacity])
    check(live(rng, pending(rng, kernel, capacity)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("capacity", "lanes"), [(1, 1), (9, 4), (70, 33), (300, 8), (600, 300)])
def test_merged_rows(capacity, lanes, seed):
    rng = np.random.default_rng([seed, capacity])
    decoding = int(rng.choice([-1, 0, 1, lanes - 1, lanes, lanes + 5, 2**31 - 1]))
    case = pending(rng, "merge_pending", capacity, lanes=lanes, decode_lanes=decoding)
    check(live(rng, case))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("prompt", [True, False])
def test_commit(prompt, capacity, seed):
    rng = np.random.default_rng([seed, capacity])
    check(live(rng, committed(rng, capacity, prompt=prompt)))


def test_commit_has_every_kind_of_lane():
    """What the random rounds above are worth."""
    lanes = [
        check(committed(np.random.default_rng(seed), 70))["lanes"].view(request_cases.LANE)
        for seed in SEEDS
    ]
    together = np.concatenate(lanes).reshape(-1)
    assert set(together["error"]) == {0, 1, 2}
    assert set(together["finish"]) == {0, 1, 2}
    assert set(together["emitted"]) == {0, 1}


def test_kernels_compile():
    rng = np.random.default_rng(0)
    check_compiles(scattered(rng, 8192, 9000), registers=128)
    check_compiles(request_cases.initialize_requests(rng, rows=5, capacity=5))
    for kernel in ("load_pending", "set_pending"):
        check_compiles(pending(rng, kernel, 5))
    check_compiles(pending(rng, "merge_pending", 5, lanes=2, decode_lanes=1))
    check_compiles(committed(rng, 5))
    check_compiles(committed(rng, 5, prompt=False))
