"""A device that runs nothing: memory and sequence numbers are real, launches are skipped.

For tests and benchmarks of the host's half (planning, packing, reading completions).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helios.runtime.buffer_values import buffer_values
from helios.runtime.capacities import host_memory
from helios.runtime.device import FRAMES, AvailableMemory, MemoryPlan
from helios.runtime.manifest import BufferClass, Program


class NullDevice:
    """Implements `helios.runtime.device.Device`; `run` may be overridden to play a program."""

    name = "null"
    kernel_path = "null"

    def __init__(self) -> None:
        self._plan: MemoryPlan | None = None
        self._views: list[tuple[NDArray[np.uint8], ...]] = []
        self._programs: tuple[Program, ...] = ()
        self._completed = 0
        self._completed_ns = 0
        self._launches = 0

    def available_memory(self) -> AvailableMemory:
        """The host's."""
        return host_memory()

    def allocate(self, plan: MemoryPlan, weights: Mapping[str, memoryview]) -> None:
        """Backs everything but the weights, each buffer apart."""
        self._plan = plan
        for planned in plan.buffers:
            buffer = planned.buffer
            if buffer.buffer_class is BufferClass.WEIGHT:
                content = np.frombuffer(weights[buffer.resource], np.uint8)
                self._views.append((content[buffer.offset :][: planned.nbytes],))
            else:
                copies = FRAMES if buffer.buffer_class.framed else 1
                self._views.append(tuple(np.zeros(planned.nbytes, np.uint8) for _ in range(copies)))

    def view(self, buffer: int, frame: int) -> NDArray[np.uint8]:
        """A buffer's bytes."""
        views = self._views[buffer]
        return views[frame % len(views)]

    def load(self, programs: Sequence[Program]) -> None:
        """Keeps the programs for `run`."""
        self._programs = tuple(programs)

    def submit(self, program: int, frame: int, sequence: int) -> None:
        """Completes at once."""
        self.run(self._programs[program], frame)
        self._launches += len(self._programs[program].launches)
        self._completed = sequence
        self._completed_ns = time.monotonic_ns()

    def run(self, program: Program, frame: int) -> None:
        """Does nothing."""

    def completed(self) -> int:
        """The last sequence submitted."""
        return self._completed

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Whether `sequence` was submitted."""
        return sequence <= self._completed

    def timing(self, sequence: int) -> tuple[int, int]:
        """When the last submission was made, twice."""
        return self._completed_ns, self._completed_ns

    def scratch_nbytes(self) -> int:
        """None is kept."""
        return 0

    def load_ns(self) -> dict[str, int]:
        """Nothing is told."""
        return {}

    def launches(self) -> int:
        """Launches skipped so far."""
        return self._launches

    def read_buffer(self, buffer: int, frame: int) -> NDArray[Any]:
        """A copy of the values."""
        assert self._plan is not None
        return buffer_values(self._plan.buffers[buffer], self.view(buffer, frame))

    def row_nbytes(self, buffer: int) -> int:
        """As declared."""
        assert self._plan is not None
        return self._plan.buffers[buffer].buffer.nbytes

    def read_rows(self, buffer: int, first: int, into: NDArray[np.uint8]) -> None:
        """Copies rows out."""
        start = first * self.row_nbytes(buffer)
        into[:] = self._views[buffer][0][start : start + into.nbytes]

    def write_rows(self, buffer: int, first: int, content: NDArray[np.uint8]) -> None:
        """Copies rows in."""
        start = first * self.row_nbytes(buffer)
        self._views[buffer][0][start : start + content.nbytes] = content

    def close(self) -> None:
        """Lets go of the memory."""
        self._views = []
