"""The differ: runs a device and the reference in lockstep and names the first wrong launch.

`LockstepDevice` is a device itself, so a `ModelRuntime` drives it with any rounds, an oracle's
included. It cuts each program into steps of one launch, or on cuda targets of those launches whose
work the same nodes do. Before a step the reference takes over the candidate's operands; after it,
what both wrote is compared. So an error is found where it arises, within the tolerance of one
kernel, and not where it has grown. What measures the machine runs on the candidate alone. Tests use
it, and `helios verify --replay`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import AccessMode
from helios.errors import ExecutionError
from helios.kernels.catalogue import MEASURING
from helios.runtime.device import AvailableMemory, Device, MemoryPlan
from helios.runtime.manifest import BufferClass, DType, Launch, Operand, Program
from helios.runtime.reference.device import ReferenceDevice
from helios.runtime.reference.steps import alone, cut, written
from helios.runtime.reference.tolerances import TOLERANCES, row_errors, tolerance_of

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
            cuts = list(cut(program))
            self._cuts.append(cuts)
            self._first_step.append(len(steps))
            steps.extend(
                replace(program, name=f"{program.name}[{index}]", launches=alone(launches))
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
        left = written(launches)
        for offset, launch in enumerate(launches):
            for spec, operand in zip(launch.kernel.operands, launch.operands, strict=True):
                if operand is None or operand.access is AccessMode.READ:
                    continue
                if operand.buffer not in left:
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
        if errors[worst] <= tolerance_of(launch, buffer.dtype, self._tolerances):
            return None
        place = tuple(int(axis) for axis in worst)
        return place, float(expected[worst]), float(got[worst]), float(errors[worst])

    def _live_rows(self, launch: Launch, frame: int) -> int:
        """Rows of a launch whose first operand counts them."""
        counted = launch.operands[0]
        assert counted is not None
        return int(self._read(counted.buffer, frame).reshape(-1)[counted.byte_offset // 4])

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
