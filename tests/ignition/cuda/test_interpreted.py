"""The interpreter's own checks: what a kernel may not do is an error that names it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ignition.cuda.interpreted import WITHOUT_TRITON, compiled, resources, run
from tests.native import request_cases
from tests.native.states import i32

pytest.importorskip("triton", reason=WITHOUT_TRITON)

FAULTS = "tests.ignition.cuda.faulty_kernels"


def case(live=3, size=9):
    return request_cases.scatter_i32(np.random.default_rng(0), rows=live, capacity=5, size=size)


def test_operands_come_back_as_the_kernel_left_them():
    launch = case().with_operands(index=i32(1, 2, 8, 0, 0), value=i32(10, 20, 30, 40, 50))
    got = run(launch)
    assert got["target"].tolist() == [-5, 10, 20, -5, -5, -5, -5, -5, 30]
    assert got.keys() == launch.operands.keys()
    assert launch.operands["target"].tolist() == [-5] * 9


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("reads_outside", "read outside every operand, 36 bytes after the start of target"),
        ("writes_outside", "written outside every operand, -4 bytes after the start of target"),
        ("writes_what_is_read", "index is written, and the catalogue only reads it"),
        ("reads_early", "rows is read before gdc_wait"),
        ("settled_alone", "rows is read before gdc_wait, and no launch of the fusion comes before"),
        ("settled_and_written", "target is read before gdc_wait, and the launch before writes it"),
        ("settled_too_soon", "and the launch before let go before it had waited"),
        ("never_waits", "ends without gdc_wait"),
        ("leaves_counters", "counters aren't zero"),
        ("misaligned", "an access of 4 bytes isn't aligned"),
        ("wrong_promise", "reach = 3 isn't a multiple of 16"),
    ],
)
def test_a_fault_is_an_error(fault, complaint):
    with pytest.raises(AssertionError, match=complaint):
        run(case(), lowering=f"{FAULTS}:{fault}")
    # The interpreter is still there for the next launch.
    assert run(case(live=0))["target"].tolist() == [-5] * 9


def test_what_the_launch_before_leaves_alone_may_be_read_early():
    launch = case(live=3).with_operands(value=i32(7, 0, 0, 0, 0))
    got = run(launch, lowering=f"{FAULTS}:settled")
    assert got["target"][:2].tolist() == [3, 7]


def test_scratch_and_counters_are_there():
    got = run(case(), lowering=f"{FAULTS}:scratch")
    assert got["target"].tolist() == [0xFF, 0, *[-5] * 7]


def test_a_tensor_map_reads_zeros_past_its_rows():
    got = run(case().with_operands(value=i32(*range(9))), lowering=f"{FAULTS}:tensor_map")
    assert got["target"].tolist() == [4, 5, 6, 7, 0, 0, 0, 0, 2]


def test_programs_can_run_in_the_opposite_order():
    ascending = run(case(), lowering=f"{FAULTS}:last_program")
    descending = run(case(), lowering=f"{FAULTS}:last_program", descending=True)
    assert (ascending["target"][0], descending["target"][0]) == (3, 0)


def test_bf16_is_rounded_to_nearest_even():
    # 1 + 2^-8 lies between two values of bf16, and so does 1 + 3 · 2^-8.
    got = run(case(), lowering=f"{FAULTS}:rounds")
    assert got["target"][:3].tolist() == [0x3F80, 0x3F82, 0x4000]


def test_an_interpreter_that_ends_is_replaced():
    with pytest.raises(AssertionError, match="the interpreter ended"):
        run(case(), lowering=f"{FAULTS}:ends")
    assert run(case(live=0))["target"].tolist() == [-5] * 9


def test_compiled_kernels_say_what_they_take():
    (kernel,) = compiled(case())
    taken = resources(kernel)
    assert 0 < taken["REG"] < 255
    assert taken["STACK"] == 0
