"""Pinned host memory, which the GPU reads and writes at the host's own addresses.

`PinnedMemory` is one block; `Frames` lays out in it what the transport needs: INPUT and COMPLETION
buffers of both frames, and the words that host and GPU tell each other the state of rounds by.
docs/execution-manifest.md says what the words mean.
"""

from __future__ import annotations

import ctypes
from typing import Final

import numpy as np
from numpy.typing import NDArray

from helios.errors import ExecutionError
from helios.runtime.device import FRAMES, MemoryPlan
from helios.runtime.devices.cuda.arenas import aligned
from helios.runtime.devices.cuda.driver import OUT_OF_MEMORY, DriverError
from helios.runtime.devices.cuda.gpu import Gpu

TIMED_SEQUENCES: Final = 256
_PORTABLE_AND_MAPPED: Final = 3
# What different sides write lies on lines of its own.
_LINE_NBYTES: Final = 256


class PinnedMemory:
    """A zeroed block; `view` is all of it. Raises ExecutionError where the system has none."""

    def __init__(self, gpu: Gpu, nbytes: int, what: str) -> None:
        self._gpu = gpu
        try:
            self.address = int(
                gpu.call(
                    f"pinning memory for {what}",
                    gpu.driver.cuMemHostAlloc,
                    max(nbytes, 1),
                    _PORTABLE_AND_MAPPED,
                )
            )
        except DriverError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            raise ExecutionError(
                f"{nbytes} bytes of host memory can't be pinned",
                where=what,
                remedy="Free host memory, or raise the limit of locked memory (ulimit -l)",
            ) from error
        block = (ctypes.c_uint8 * nbytes).from_address(self.address)
        self.view: NDArray[np.uint8] = np.frombuffer(memoryview(block).cast("B"), np.uint8)
        self.view[:] = 0

    def close(self) -> None:
        """Gives it back; nothing may look at `view` afterwards."""
        self._gpu.driver.cuMemFreeHost(self.address)


class FrameLayout:
    """Where the frames' buffers lie in their block of `nbytes`, behind the words: `places` holds a
    buffer's offset for each frame, `sizes` its bytes."""

    times_at: Final = (1 + FRAMES) * _LINE_NBYTES
    times_end: Final = times_at + 16 * TIMED_SEQUENCES

    def __init__(self, plan: MemoryPlan) -> None:
        self.sizes = {
            index: planned.nbytes
            for index, planned in enumerate(plan.buffers)
            if planned.buffer.buffer_class.framed
        }
        at = aligned(self.times_end)
        places: dict[int, list[int]] = {index: [] for index in self.sizes}
        for _ in range(FRAMES):
            for index, nbytes in self.sizes.items():
                places[index].append(at)
                at += aligned(nbytes)
        self.places = {index: tuple(offsets) for index, offsets in places.items()}
        self.nbytes = at


class Frames:
    """Both frames' INPUT and COMPLETION buffers and the words beside them.

    `completed` is the last sequence that has been released, `sequences` what each frame's next
    round releases, `times` the (start, end) of the last `TIMED_SEQUENCES`, on the GPU's clock.
    """

    def __init__(self, gpu: Gpu, plan: MemoryPlan) -> None:
        self._layout = layout = FrameLayout(plan)
        times_at = layout.times_at
        self._memory = PinnedMemory(gpu, layout.nbytes, "the frames of rounds")
        words = self._memory.view[:times_at].view(np.int64).data
        stride = _LINE_NBYTES // 8
        self.completed = words[:1]
        self.sequences = tuple(
            words[(1 + frame) * stride : (1 + frame) * stride + 1] for frame in range(FRAMES)
        )
        times = self._memory.view[times_at : layout.times_end]
        self.times = times.view(np.int64).reshape(TIMED_SEQUENCES, 2)
        self.completed_address = self._memory.address
        self.sequence_addresses = tuple(
            self._memory.address + (1 + frame) * _LINE_NBYTES for frame in range(FRAMES)
        )
        self.times_address = self._memory.address + times_at

    def address(self, buffer: int, frame: int) -> int:
        """Of a frame's copy of a buffer."""
        return self._memory.address + self._layout.places[buffer][frame]

    def view(self, buffer: int, frame: int) -> NDArray[np.uint8]:
        """The bytes of a frame's copy of a buffer."""
        begin = self._layout.places[buffer][frame]
        return self._memory.view[begin : begin + self._layout.sizes[buffer]]

    def close(self) -> None:
        """Gives the memory back; no view may be used afterwards."""
        self._memory.close()
