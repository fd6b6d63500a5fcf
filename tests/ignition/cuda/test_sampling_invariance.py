"""Sampling on the CUDA target: a row's bits don't depend on its company; cubins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ignition.cuda.interpreted import WITHOUT_TRITON, compiled, lowered, resources
from tests.ignition.cuda.sampled import run_small
from tests.native import request_cases, sampling
from tests.native.company import SCORES, rows_of
from tests.native.launches import Case

pytest.importorskip("triton", reason=WITHOUT_TRITON)

CAPACITY = 7
_DRAWN: dict[str, Any] = {"temperature": 0.9, "top_p": 0.9, "top_k": 100, "min_p": 0.001}
_ROWS: dict[str, Any] = {"rows": CAPACITY, "capacity": CAPACITY, "vocab": 400}


def launch(name: str) -> Case:
    """A launch of `CAPACITY` rows."""
    rng = np.random.default_rng(1)
    if name == "score_ranked":
        return request_cases.score_ranked(rng, **_ROWS)
    kernel, _, way = name.partition(" ")
    parameters = {"greedy": {"temperature": 0.0}, "all": {"temperature": 0.9}}.get(way, _DRAWN)
    if kernel == "sample":
        return request_cases.sample(rng, **_ROWS, **parameters)
    return sampling.sample_processed(rng, capacity=CAPACITY, vocab=400, **parameters)


@pytest.mark.parametrize(
    "name",
    ["sample greedy", "sample all", "sample nucleus", "processed greedy", "processed nucleus",
     "score_ranked"],
)  # fmt: skip
def test_a_row_is_the_same_in_any_company(name: str) -> None:
    case = launch(name)
    outputs = [o for o in (*SCORES, "tokens", "logprobs") if o in case.operands]
    together = run_small(case)
    rng = np.random.default_rng(2)
    for picked in ([3], sorted(rng.choice(CAPACITY, 4, replace=False)), rng.permutation(CAPACITY)):
        capacity = len(picked) + int(rng.integers(0, 3))
        apart = run_small(rows_of(case, list(picked), capacity))
        for operand in outputs:
            for at, row in enumerate(picked):
                assert apart[operand][at].tobytes() == together[operand][row].tobytes(), (
                    operand, picked, row,
                )  # fmt: skip


def sized(kernel: str, *, capacity: int, vocab: int) -> Case:
    """A launch of which nothing is looked at but which operands there are."""
    rng = np.random.default_rng(0)
    case = {
        "sample": lambda: request_cases.sample(rng, rows=1, capacity=1, vocab=40),
        "sample_processed": lambda: sampling.sample_processed(
            rng, capacity=1, vocab=40, grammar=True
        ),
        "score_ranked": lambda: request_cases.score_ranked(rng, rows=1, capacity=1, vocab=40),
    }[kernel]()
    return case.with_integers(capacity=capacity, vocab=vocab, stride=vocab)


@pytest.mark.parametrize("kernel", ["sample", "sample_processed", "score_ranked"])
def test_one_cubin_serves_every_capacity_and_vocabulary(kernel: str) -> None:
    small, large = (
        lowered(sized(kernel, capacity=c, vocab=v)) for c, v in ((1, 49_152), (256, 151_936))
    )
    assert [k.request.name for k in small] == [k.request.name for k in large]
    assert small[0].grid[:2] == (24, 1)
    assert large[0].grid[:2] == (75, 256)


@pytest.mark.parametrize("kernel", ["sample", "sample_processed", "score_ranked"])
def test_kernels_compile(kernel: str) -> None:
    scan, finish = compiled(sized(kernel, capacity=8, vocab=49_152))
    assert resources(scan)["STACK"] == 0
    assert resources(scan)["REG"] <= 64  # sixteen programs a multiprocessor
    assert resources(finish)["STACK"] <= 64
    assert finish.threads == 512
