"""The differ: runs a device and the reference in lockstep and names the first wrong launch.

`LockstepDevice` is a device itself, so a `ModelRuntime` drives it with any rounds, an oracle's
included. It cuts each program into steps of one launch, or on cuda targets of those launches whose
work the same nodes do. Before a step the reference takes over the candidate's operands; after it,
what both wrote is compared. So an error is found where it arises, within the tolerance of one
kernel, and not where it has grown. What measures the machine runs on the candidate alone. Tests use
it, and `helios verify --replay`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import AccessMode
from helios.errors import ExecutionError
from helios.kernels.catalogue import MEASURING
from helios.runtime.device import AvailableMemory, Device, MemoryPlan
from helios.runtime.manifest import BufferClass, DType, Launch, Operand, Packing, Program
from helios.runtime.reference.device import ReferenceDevice

# Largest error of one launch, relative to the largest magnitude in the row: rounding to the
# storage format, and for f32 the order of sums and the argument of sines.
TOLERANCES: Final[Mapping[DType, float]] = {
    DType.F32: 1e-3,
    DType.F16: 2e-3,
    DType.BF16: 1e-2,
    DType.ACT_Q8: 1e-2,
    DType.ACT_Q16: 1e-3,
    DType.ACT_Q8_PAIRS: 1e-2,
}
# The same for what kernels write whose products take more than the format rounds: scores of bf16
# queries are off by 2^-9 of themselves, and the exponential turns that into a relative error.
KERNEL_TOLERANCES: Final[Mapping[str, float]] = {"attention_bf16": 3e-2}
# So much more where blocks lie in pairs: each block's sum is rounded to what the pair's scale can
# hold, which the reference, multiplying in float32, doesn't do.
_PAIRS_FACTOR: Final = 4.0
_LAUNCH_TIMEOUT_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a device first departs from the reference: a launch, what it wrote, the worst element
    (its index in the buffer, both values) and its error relative to the row."""

    program: str
    launch: int
    kernel: str
    operand: str
    buffer: str
    index: tuple[int, ...]
    expected: float
    got: float
    error: float

    def __str__(self) -> str:
        return (
            f"program {self.program}, launch {self.launch} ({self.kernel}): {self.operand} in"
            f" buffer {self.buffer} at {list(self.index)} is {self.got:g}, the reference says"
            f" {self.expected:g} (error {self.error:.2g} of the row's largest value)"
        )


class LockstepDevice:
    """Implements `helios.runtime.device.Device`: the candidate's results, compared as they arise.

    `first_difference` is None as long as all launches agreed; comparing ends with the first.
    """

    def __init__(self, candidate: Device, tolerances: Mapping[DType, float] = TOLERANCES) -> None:
        self.first_difference: Difference | None = None
        self.compared = 0
        self._candidate = candidate
        self._reference = ReferenceDevice()
        self._tolerances = tolerances
        self._plan: MemoryPlan | None = None
        self._programs: list[Program] = []
        # Of each program, each step's first launch and launches; and its first step of all.
        self._cuts: list[list[tuple[int, tuple[Launch, ...]]]] = []
        self._first_step: list[int] = []
        self._steps = 0
        self._completed = 0
        self._timings: dict[int, tuple[int, int]] = {}

    @property
    def name(self) -> str:
        """The candidate's target."""
        return self._candidate.name

    @property
    def kernel_path(self) -> str:
        """The candidate's kernel path."""
        return self._candidate.kernel_path

    def available_memory(self) -> AvailableMemory:
        """The candidate's."""
        return self._candidate.available_memory()

    def allocate(self, plan: MemoryPlan, weights: Mapping[str, memoryview]) -> None:
        """Backs the plan on both devices."""
        self._plan = plan
        self._candidate.allocate(plan, weights)
        self._reference.allocate(plan, weights)

    def view(self, buffer: int, frame: int) -> NDArray[np.uint8]:
        """The candidate's view."""
        return self._candidate.view(buffer, frame)

    def load(self, programs: Sequence[Program]) -> None:
        """Loads each step as a program of its own on both devices."""
        steps: list[Program] = []
        for program in programs:
            cuts = list(_cut(program))
            self._cuts.append(cuts)
            self._first_step.append(len(steps))
            steps.extend(
                replace(program, name=f"{program.name}[{index}]", launches=_alone(launches))
                for index, launches in cuts
            )
        self._programs.extend(programs)
        self._candidate.load(steps)
        self._reference.load(steps)

    def submit(self, program: int, frame: int, sequence: int) -> None:
        """Runs a program step by step, comparing until the first difference."""
        begin = end = 0
        for number, (index, launches) in enumerate(self._cuts[program]):
            step = self._first_step[program] + number
            self._steps += 1
            measures = any(launch.kernel.name in MEASURING for launch in launches)
            compare = self.first_difference is None and not measures
            if compare:
                self._take_over(launches, frame)
            self._candidate.submit(step, frame, self._steps)
            if not self._candidate.wait(self._steps, _LAUNCH_TIMEOUT_MS):
                raise ExecutionError(
                    f"launch {index} didn't complete within {_LAUNCH_TIMEOUT_MS // 1000} s",
                    where=f"program {self._programs[program].name}",
                    remedy="Check that the machine isn't stalled",
                )
            start, end = self._candidate.timing(self._steps)
            begin = begin or start
            if compare:
                self._reference.submit(step, frame, self._steps)
                self._reference.wait(self._steps, 0)
                self._compare(self._programs[program].name, index, launches, frame)
        self._completed = sequence
        self._timings[sequence] = (begin, end)

    def _planned(self) -> MemoryPlan:
        assert self._plan is not None, "allocate comes first"
        return self._plan

    def _read(self, buffer: int, frame: int) -> NDArray[Any]:
        """The candidate's values. Rows that no kernel wrote may hold any bits, which needn't be
        numbers in the buffer's format."""
        with np.errstate(invalid="ignore", over="ignore"):
            return self._candidate.read_buffer(buffer, frame)

    def _take_over(self, launches: Sequence[Launch], frame: int) -> None:
        """Copies the candidate's operands, written ones included (a kernel may write a part), to
        the reference."""
        buffers = self._planned().buffers
        named = {o.buffer for launch in launches for o in launch.operands if o is not None}
        for index in named:
            if buffers[index].buffer.buffer_class is not BufferClass.WEIGHT:
                values = self._read(index, frame)
                self._reference.array(index, frame)[:] = values.reshape(-1)

    def _compare(self, program: str, first: int, launches: Sequence[Launch], frame: int) -> None:
        """Compares what a step wrote and keeps the first difference."""
        written = _written(launches)
        for offset, launch in enumerate(launches):
            for spec, operand in zip(launch.kernel.operands, launch.operands, strict=True):
                if operand is None or operand.access is AccessMode.READ:
                    continue
                if operand.buffer not in written:
                    continue  # within the step
                found = self._difference(launch, operand, frame)
                if found is not None:
                    place, expected, got, error = found
                    self.first_difference = Difference(
                        program=program,
                        launch=first + offset,
                        kernel=launch.kernel.name,
                        operand=spec.name,
                        buffer=self._planned().buffers[operand.buffer].buffer.name,
                        index=place,
                        expected=expected,
                        got=got,
                        error=error,
                    )
                    return
        self.compared += len(launches)

    def _difference(
        self, launch: Launch, operand: Operand, frame: int
    ) -> tuple[tuple[int, ...], float, float, float] | None:
        """Index, both values and error of the worst element, if it is out of bounds."""
        buffer = self._planned().buffers[operand.buffer].buffer
        got = self._read(operand.buffer, frame)
        expected = self._reference.read_buffer(operand.buffer, frame)
        copied = buffer.buffer_class is BufferClass.COMPLETION
        if copied and self._candidate.name.startswith("cuda:"):
            # What the host is sent beyond the launch's live rows may be anything.
            rows = operand.byte_offset * len(got) // buffer.nbytes + self._live_rows(launch, frame)
            got, expected = got[:rows], expected[:rows]
            if not rows:
                return None
        errors = row_errors(got, expected)
        worst = np.unravel_index(int(np.argmax(errors)), errors.shape)
        if errors[worst] <= self._tolerance(launch, buffer.dtype):
            return None
        place = tuple(int(axis) for axis in worst)
        return place, float(expected[worst]), float(got[worst]), float(errors[worst])

    def _live_rows(self, launch: Launch, frame: int) -> int:
        """Rows of a launch whose first operand counts them."""
        counted = launch.operands[0]
        assert counted is not None
        return int(self._read(counted.buffer, frame).reshape(-1)[counted.byte_offset // 4])

    def _tolerance(self, launch: Launch, dtype: DType) -> float:
        tolerance = KERNEL_TOLERANCES.get(launch.kernel.name, self._tolerances.get(dtype, 0.0))
        pairs = _attribute(launch, "packing") == Packing.TILE16_Q4_PAIRS
        return tolerance * _PAIRS_FACTOR if pairs else tolerance

    def completed(self) -> int:
        """The last sequence that has run."""
        return self._completed

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Whether `sequence` has run; there is nothing to wait for."""
        return self._completed >= sequence

    def timing(self, sequence: int) -> tuple[int, int]:
        """From the first launch's start to the last one's end, comparisons included."""
        return self._timings[sequence]

    def scratch_nbytes(self) -> int:
        """What both devices take beside the plan."""
        return self._candidate.scratch_nbytes() + self._reference.scratch_nbytes()

    def load_ns(self) -> Mapping[str, int]:
        """The candidate's."""
        return self._candidate.load_ns()

    def launches(self) -> int:
        """Launches that the candidate executed."""
        return self._candidate.launches()

    def read_buffer(self, buffer: int, frame: int) -> NDArray[Any]:
        """The candidate's buffer."""
        return self._candidate.read_buffer(buffer, frame)

    def row_nbytes(self, buffer: int) -> int:
        """The candidate's."""
        return self._candidate.row_nbytes(buffer)

    def read_rows(self, buffer: int, first: int, into: NDArray[np.uint8]) -> None:
        """The candidate's rows."""
        self._candidate.read_rows(buffer, first, into)

    def write_rows(self, buffer: int, first: int, content: NDArray[np.uint8]) -> None:
        """Into the candidate: the reference takes over what each launch reads."""
        self._candidate.write_rows(buffer, first, content)

    def close(self) -> None:
        """Closes both devices."""
        self._candidate.close()
        self._reference.close()


def _alone(launches: tuple[Launch, ...]) -> tuple[Launch, ...]:
    """Launches of a step whose first node waits for all before it: what it reads early was to be
    written before a launch that isn't there."""
    places = [place for place, launch in enumerate(launches) if launch.nodes]
    if not places:
        return launches
    first, *others = launches[places[0]].nodes
    patient = replace(launches[places[0]], nodes=(replace(first, programmatic=False), *others))
    return (*launches[: places[0]], patient, *launches[places[0] + 1 :])


def _cut(program: Program) -> Iterator[tuple[int, tuple[Launch, ...]]]:
    """Steps: the number of their first launch, and their launches. On targets without nodes each
    launch is one; else those without nodes belong to the next that has some."""
    has_nodes = any(launch.nodes for launch in program.launches)
    first = 0
    for number, launch in enumerate(program.launches):
        if launch.nodes or not has_nodes:
            yield first, program.launches[first : number + 1]
            first = number + 1


def _written(launches: Sequence[Launch]) -> set[int]:
    """Buffers that hold what a step wrote when it is over: where nodes do the work of several
    launches, what they don't write themselves isn't anywhere."""
    nodes = [node for launch in launches for node in launch.nodes]
    if not nodes:
        return {o.buffer for launch in launches for o in launch.operands if o is not None}
    return {
        argument.buffer
        for node in nodes
        for argument in node.arguments
        if isinstance(argument, Operand) and argument.access is not AccessMode.READ
    }


def row_errors(got: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.float64]:
    """|got − expected| over the largest expected magnitude of the same row (last axis); zero
    where both are equal or not a number, infinite where only one is."""
    with np.errstate(invalid="ignore", over="ignore"):
        wide_got, wide_expected = got.astype(np.float64), expected.astype(np.float64)
        same = (wide_got == wide_expected) | (np.isnan(wide_got) & np.isnan(wide_expected))
        distance = np.abs(wide_got - wide_expected)
        finite = np.where(np.isfinite(wide_expected), np.abs(wide_expected), 0)
        largest = finite.max(axis=-1, keepdims=True, initial=0)
        errors = np.where(same, 0.0, distance / np.maximum(largest, np.finfo(np.float32).tiny))
    return np.where(np.isnan(errors), np.inf, errors)


def _attribute(launch: Launch, name: str) -> int | None:
    """A launch's integer by name, None where its kernel has none."""
    if name not in launch.kernel.integers:
        return None
    return launch.integers[launch.kernel.integers.index(name)]
