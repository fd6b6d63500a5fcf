"""The reference device and the lockstep differ, on a plan made by hand: look up, norm, project."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from helios.contract.enums import AccessMode, Operation
from helios.errors import ContractError, ExecutionError
from helios.kernels.catalogue import BY_NAME, KernelSpec
from helios.runtime.device import MemoryPlan, PlannedBuffer
from helios.runtime.manifest import (
    Buffer,
    BufferClass,
    DType,
    Launch,
    LeadingCount,
    Operand,
    Packing,
    Program,
)
from helios.runtime.reference.device import ReferenceDevice
from helios.runtime.reference.differ import LockstepDevice
from helios.runtime.reference.tolerances import row_errors

VOCAB, WIDTH, OUTPUTS, ROWS = 5, 32, 3, 2
ROWS_IN, TOKENS, TABLE, X, NORM, NORMED, OUT = range(7)


def planned(
    name: str, kind: BufferClass, dtype: DType, shape: tuple[int, ...], offset: int = 0
) -> PlannedBuffer:
    nbytes = int(np.prod(shape[:-1])) * dtype.row_nbytes(shape[-1])
    buffer = Buffer(
        name, kind, dtype, Packing.PLAIN, LeadingCount.FIXED, shape, nbytes, offset,
        "weights" if kind is BufferClass.WEIGHT else "",
    )  # fmt: skip
    return PlannedBuffer(buffer, shape, nbytes)


def plan() -> MemoryPlan:
    # The workspace buffers overlap in the arena on purpose: the reference doesn't alias them.
    buffers = (
        planned("in.live_rows", BufferClass.INPUT, DType.I32, (1,)),
        planned("in.tokens", BufferClass.INPUT, DType.I32, (ROWS,)),
        planned("table", BufferClass.WEIGHT, DType.F32, (VOCAB, WIDTH)),
        planned("x", BufferClass.WORKSPACE, DType.F32, (ROWS, WIDTH)),
        planned("norm", BufferClass.WEIGHT, DType.F32, (WIDTH,), offset=VOCAB * WIDTH * 4),
        planned("normed", BufferClass.WORKSPACE, DType.ACT_Q8, (ROWS, WIDTH)),
        planned("out", BufferClass.COMPLETION, DType.F32, (ROWS, OUTPUTS)),
    )
    return MemoryPlan(buffers, {}, ROWS * WIDTH * 4)


def launch(kernel: str, *operands: tuple[int, int] | int, integers: tuple[int, ...],
           floats: tuple[float, ...] = ()) -> Launch:  # fmt: skip
    spec = BY_NAME[kernel]
    modes = {"r": AccessMode.READ, "w": AccessMode.WRITE, "rw": AccessMode.READ_WRITE}
    found: list[Operand | None] = []
    remaining = list(operands)
    for operand in spec.operands:
        if operand.optional:
            found.append(None)
            continue
        item = remaining.pop(0)
        buffer, offset = item if isinstance(item, tuple) else (item, 0)
        found.append(Operand(buffer, offset, modes[operand.access]))
    return Launch(spec, tuple(found), integers, floats)


def program(*launches: Launch) -> Program:
    return Program("prefill.p2", Operation.PREFILL, ROWS, 0, 1, ROWS, launches, (), "", (), ())


EMBED = launch(
    "embed", ROWS_IN, TOKENS, TABLE, X, integers=(ROWS, VOCAB, WIDTH, Packing.PLAIN), floats=(1.0,)
)
RMS_NORM = launch("rms_norm", ROWS_IN, X, NORM, NORMED, integers=(ROWS, WIDTH, 2), floats=(1e-5,))
# The head is tied: rows 1 … 3 of the table.
LINEAR = launch(
    "linear", ROWS_IN, NORMED, (TABLE, WIDTH * 4), OUT,
    integers=(ROWS, WIDTH, OUTPUTS, Packing.PLAIN, 2, 0),
)  # fmt: skip


def weights() -> dict[str, memoryview]:
    values = np.random.default_rng(2).standard_normal((VOCAB + 1) * WIDTH).astype(np.float32)
    return {"weights": memoryview(values.tobytes())}


def expected_logits(tokens: list[int]) -> np.ndarray:
    values = np.frombuffer(weights()["weights"], np.float32).astype(np.float64)
    table, norm = values[: VOCAB * WIDTH].reshape(VOCAB, WIDTH), values[VOCAB * WIDTH :]
    x = table[tokens]
    normed = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5) * norm
    result: np.ndarray = normed @ table[1 : 1 + OUTPUTS].T
    return result


def stage(device: ReferenceDevice | LockstepDevice, frame: int, tokens: list[int]) -> None:
    device.view(ROWS_IN, frame)[:] = np.array([len(tokens)], np.int32).view(np.uint8)
    staged = device.view(TOKENS, frame).view(np.int32)
    staged[: len(tokens)] = tokens


def test_runs_a_program_on_each_frame() -> None:
    device = ReferenceDevice()
    device.allocate(plan(), weights())
    device.load([program(EMBED, RMS_NORM, LINEAR)])
    stage(device, 0, [4, 1])
    stage(device, 1, [2])
    device.submit(0, 1, 1)
    device.submit(0, 0, 2)
    assert device.completed() == 2
    assert device.wait(2, 0)
    assert not device.wait(3, 0)
    assert device.launches() == 6
    start, end = device.timing(1)
    assert start <= end <= device.timing(2)[0]
    np.testing.assert_allclose(device.read_buffer(OUT, 0), expected_logits([4, 1]), rtol=1e-4)
    # The second row wasn't live on frame 1 and keeps what it held.
    np.testing.assert_allclose(device.read_buffer(OUT, 1)[0], expected_logits([2])[0], rtol=1e-4)
    assert not device.read_buffer(OUT, 1)[1].any()
    raw = device.view(OUT, 0).view(np.float32)
    np.testing.assert_array_equal(raw, device.read_buffer(OUT, 0).reshape(-1))


@pytest.mark.parametrize("offset", [2, WIDTH * VOCAB * 4, WIDTH * VOCAB * 4 + 64])
def test_refuses_an_offset_that_is_no_element(offset: int) -> None:
    device = ReferenceDevice()
    device.allocate(plan(), weights())
    bad = launch("rms_norm", ROWS_IN, (X, offset), NORM, NORMED, integers=(ROWS, WIDTH, 2),
                 floats=(1e-5,))  # fmt: skip
    with pytest.raises(ContractError, match=r"program prefill\.p2, launch 1: operand x of rms"):
        device.load([program(EMBED, bad)])


def test_refuses_an_unknown_kernel() -> None:
    device = ReferenceDevice()
    device.allocate(plan(), weights())
    unknown = Launch(KernelSpec("convolve", (), ()), (), (), ())
    with pytest.raises(ContractError, match="launch 0: the reference has no kernel convolve"):
        device.load([program(unknown)])


def test_a_failing_kernel_is_an_execution_error() -> None:
    device = ReferenceDevice()
    device.allocate(plan(), weights())
    too_wide = launch(
        "linear", ROWS_IN, X, TABLE, OUT, integers=(ROWS, WIDTH, 100, Packing.PLAIN, 0, 0)
    )
    device.load([program(too_wide)])
    stage(device, 0, [0])
    device.submit(0, 0, 1)
    with pytest.raises(ExecutionError, match="submission 1: the reference failed"):
        device.wait(1, 0)


def test_reads_plain_weights() -> None:
    device = ReferenceDevice()
    device.allocate(plan(), weights())
    values = np.frombuffer(weights()["weights"], np.float32)
    np.testing.assert_array_equal(device.read_buffer(NORM, 0), values[VOCAB * WIDTH :])
    assert device.read_buffer(TABLE, 0).shape == (VOCAB, WIDTH)


class WrongNorm(ReferenceDevice):
    """A device whose first norm of token 4 is off by `error` in one place."""

    def __init__(self, error: float) -> None:
        super().__init__()
        self._error = error

    def allocate(self, plan: MemoryPlan, weights: Mapping[str, memoryview]) -> None:
        self._plan = plan
        super().allocate(plan, weights)

    def submit(self, program: int, frame: int, sequence: int) -> None:
        super().submit(program, frame, sequence)
        if program == 1 and self.array(TOKENS, frame)[1] == 4:
            row = self.array(NORMED, frame).reshape(ROWS, WIDTH)[1]
            row[7] += self._error * np.abs(row).max()


def lockstep(error: float) -> LockstepDevice:
    device = LockstepDevice(WrongNorm(error))
    device.allocate(plan(), weights())
    device.load([program(EMBED, RMS_NORM, LINEAR)])
    for sequence, tokens in enumerate([[1, 2], [0, 4], [4, 4]], start=1):
        frame = sequence % 2
        stage(device, frame, tokens)
        device.submit(0, frame, sequence)
    return device


def test_differ_names_the_launch_that_is_wrong() -> None:
    device = lockstep(0.05)
    found = device.first_difference
    assert found is not None
    assert (found.program, found.launch, found.kernel) == ("prefill.p2", 1, "rms_norm")
    assert (found.operand, found.buffer, found.index) == ("out", "normed", (1, 7))
    assert found.error == pytest.approx(0.05, rel=0.1)
    assert device.compared == 3 + 1
    assert "launch 1 (rms_norm): out in buffer normed at [1, 7]" in str(found)
    # It goes on with the candidate's own results.
    assert device.completed() == 3
    assert device.launches() == 9


def test_differ_accepts_what_the_format_rounds() -> None:
    device = lockstep(0.004)
    assert device.first_difference is None
    assert device.compared == 9


def test_row_errors() -> None:
    expected = np.array([[1.0, -4.0, np.nan, np.inf], [0.0, 0.0, 0.0, 2.0]])
    got = np.array([[1.4, -4.0, np.nan, np.inf], [0.0, np.nan, 0.0, 2.0]])
    np.testing.assert_allclose(row_errors(got, expected), [[0.1, 0, 0, 0], [0, np.inf, 0, 0]])
