"""What a GPU's results are held against, without a GPU: wrong ones are found and named."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.every_trial import EVERY_TRIAL, make
from tests.gpu.executing import unequal
from tests.gpu.expectations import differences, expected
from tests.gpu.placing import Place, Placed
from tests.gpu.trials import WHOLE, Run, SameBits, Trial, rows_of_all
from tests.native import layer_cases, request_cases
from tests.native.packings import F32_FORMAT


def right(run: Run) -> dict[int, np.ndarray]:
    """Arrays as numpy leaves them, of launches without formats of 16 bits."""
    wanted = expected(run.cases)
    return {
        id(array): wanted.get(id(array), array).view(array.dtype).reshape(array.shape).copy()
        for case in run.cases
        for array in case.operands.values()
    }


def norm() -> Run:
    case = layer_cases.rms_norm(np.random.default_rng(1), F32_FORMAT, rows=3, capacity=5, width=64)
    return Run((case.with_operands(out=case.operands["out"].view(np.float32)),))


def test_numpy_s_own_results_are_right():
    run = norm()
    assert differences(run, right(run)) == []


@pytest.mark.parametrize("change", [1.01, np.nan, -1])
def test_one_element_is_enough(change):
    run = norm()
    after = right(run)
    after[id(run.cases[0].operands["out"])].reshape(-1)[70] *= change
    (said,) = differences(run, after)
    assert said.startswith("rms_norm.out: 1 of 320 elements differ: [70] ")


def test_a_row_that_isn_t_live_must_stay_as_it_is():
    run = norm()
    after = right(run)
    out = after[id(run.cases[0].operands["out"])]
    out.view(np.uint32)[4, 3] ^= 1
    (said,) = differences(run, after)
    assert "1 of 320 elements differ: [259]" in said


def test_what_is_moved_is_the_same_bit_for_bit():
    case = request_cases.initialize_requests(np.random.default_rng(1), rows=3, capacity=3)
    run = Run((case,))
    after = right(run)
    assert differences(run, after) == []
    after[id(case.operands["state"])][1, 40] ^= 1
    (said,) = differences(run, after)
    assert said.startswith("initialize_requests.state: 1 of 384 elements differ")


def test_nobody_looks_at_what_is_unread():
    run = norm()
    unread = Run(run.cases, unread=(run.cases[0].operands["out"],))
    after = right(run)
    after[id(run.cases[0].operands["out"])][:] = 0
    assert differences(unread, after) == []


def test_rows_with_other_bits_are_named():
    run = norm()
    part = Run(tuple(rows_of_all(run.cases, [2, 0], 4)))
    trial = Trial(
        {WHOLE: run, "two": part}, [SameBits("two", "out", np.arange(2), np.array([2, 0]))]
    )
    left = {WHOLE: right(run), "two": right(part)}
    assert unequal(trial, left) == []
    left["two"][id(part.cases[0].operands["out"])].view(np.uint32)[1, 5] ^= 1
    (said,) = unequal(trial, left)
    assert said == "out of 1 rows of 2 has other bits in 'two' than in 'whole', the first is 1"


def test_bytes_that_nothing_may_write_are_named():
    array, other = np.zeros(8, np.uint8), np.zeros(4, np.uint8)
    placed = Placed(
        {1: (array, Place("written", 512, 520)), 2: (other, Place("read", 1280, 1284))},
        frozenset({1}), (Place("scratch", 2048, 2052),), 2600,
    )  # fmt: skip
    before = placed.image(None)
    after = before.copy()
    after[514] = after[2049] = 9
    assert placed.strayed(before, after) == ""
    after[520] = 9
    assert "1 bytes changed" in placed.strayed(before, after)
    assert "8 bytes after the beginning of written, which has 8" in placed.strayed(before, after)
    after[520], after[1281] = before[520], 9
    assert "1 bytes after the beginning of read" in placed.strayed(before, after)


@pytest.mark.parametrize("name", ["projection tiny qkv", "rotated tiny", "begin mixed 4x64 #1"])
def test_a_trial_is_the_same_wherever_it_is_made(name):
    one, other = make(name), make(name)
    assert list(one.runs) == list(other.runs)
    for run in one.runs:
        for case, again in zip(one.runs[run].cases, other.runs[run].cases, strict=True):
            assert case.integers == again.integers
            for operand, array in case.operands.items():
                assert array.tobytes() == again.operands[operand].tobytes()


def test_names_of_trials_tell_their_programs_apart():
    assert not any(":" in name or "/" in name for name in EVERY_TRIAL)
