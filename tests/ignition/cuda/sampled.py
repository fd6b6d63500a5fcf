"""Launches that sample or score, interpreted with small blocks and held against the reference."""

from __future__ import annotations

import numpy as np

from tests.ignition.cuda.interpreted import run
from tests.native.harness import Array, Case
from tests.native.reference import by_reference

LOGPROBS = ("logprobs", "top_logprobs", "out")


def run_small(case: Case, *, descending: bool = False) -> dict[str, Array]:
    """The operands after the launch, by programs that take few logits at once."""
    lowering = f"tests.ignition.cuda.small_sampling:{case.kernel}"
    return run(case, lowering=lowering, descending=descending)


def check(case: Case) -> dict[str, Array]:
    """The operands after the launch: tokens and ranks those of the reference, logprobs within
    rounding."""
    got = run_small(case)
    for name, array in by_reference(case).items():
        if name in LOGPROBS:
            np.testing.assert_allclose(got[name], array, rtol=1e-6, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(got[name], array, name)
    return got
