"""A cuda device on the stand-in driver whose rounds mean something: the reference plays them.

Everything that the device does is real: staging, graphs, records, words. In the midst of each graph
the reference reads the inputs that `stage` has brought and leaves the record for `record` to take.
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from helios.runtime.device import DeviceOptions, MemoryPlan
from helios.runtime.devices.cuda.device import CudaDevice
from helios.runtime.manifest import BufferClass, CudaTarget, Program
from helios.runtime.reference.device import ReferenceDevice
from tests.standin_driver.control import Standin


class PlayedCudaDevice(CudaDevice):
    """Implements `helios.runtime.device.Device`; CACHE and STATE contents are the reference's."""

    def __init__(
        self,
        name: str,
        options: DeviceOptions,
        target: CudaTarget | None,
        modules: Mapping[str, bytes],
    ) -> None:
        limit = os.environ.get("STANDIN_ROUND_LIMIT_S")
        if limit is not None:
            options = replace(options, round_limit_s=float(limit))
        super().__init__(name, options, target, modules)
        self._player = ReferenceDevice()
        self._rounds: deque[tuple[int, int]] = deque()
        self._loaded = 0
        self.standin = Standin()
        self.standin.on_round(self._play, options.ordinal)

    def allocate(self, plan: MemoryPlan, weights: Mapping[str, memoryview]) -> None:
        super().allocate(plan, weights)
        self._player.allocate(plan, weights)

    def load(self, programs: Sequence[Program]) -> None:
        self._loaded = len(programs)
        self._player.load(programs)
        super().load(programs)

    def submit(self, program: int, frame: int, sequence: int) -> None:
        self._rounds.append((program, frame))
        super().submit(program, frame, sequence)

    def _play(self) -> None:
        program, frame = self._rounds.popleft()
        if program == self._loaded:
            return  # of calibration
        assert self._plan is not None
        for buffer, planned in enumerate(self._plan.buffers):
            if planned.buffer.buffer_class is BufferClass.INPUT:
                copy = (
                    self.view(buffer, frame) if buffer in self._in_place else self._copy_of(buffer)
                )
                self._player.view(buffer, frame)[:] = copy
        for launch in self._player._programs[program][frame]:
            launch()
        for buffer, planned in enumerate(self._plan.buffers):
            if planned.buffer.buffer_class is BufferClass.COMPLETION:
                self._copy_of(buffer)[:] = self._player.view(buffer, frame)

    def _copy_of(self, buffer: int) -> NDArray[np.uint8]:
        """The GPU's copy of an INPUT or COMPLETION buffer, which the stand-in keeps on the host."""
        assert self._plan is not None
        assert self._arenas is not None
        nbytes = self._plan.buffers[buffer].nbytes
        block = (ctypes.c_uint8 * nbytes).from_address(self._arenas.addresses[buffer])
        return np.frombuffer(memoryview(block).cast("B"), np.uint8)
