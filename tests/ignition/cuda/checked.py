"""Cases of kernels that copy and count: on CUDA as by the reference, bit for bit."""

from __future__ import annotations

import numpy as np

from tests.ignition.cuda.interpreted import compiled, resources, run
from tests.native.harness import Array, Case
from tests.native.reference import by_reference


def check(case: Case) -> dict[str, Array]:
    """The operands after the launch, equal to the reference's whichever program runs first."""
    expected = by_reference(case)
    for descending in (False, True):
        got = run(case, descending=descending)
        for name, array in expected.items():
            np.testing.assert_array_equal(got[name], array, name)
            assert got[name].tobytes() == array.tobytes(), name
    return expected


def check_compiles(case: Case, *, registers: int = 64) -> None:
    """The launch's kernels compile for an H200, spill nothing and take few registers."""
    for kernel in compiled(case):
        taken = resources(kernel)
        assert taken["STACK"] == 0, kernel.function
        assert taken["REG"] <= registers, kernel.function
