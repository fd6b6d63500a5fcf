"""A cuda device over the stand-in driver whose rounds answer from a script, for timing the host.

All that the device does is real but the driver: packing, launches, records, words. A launch waits
in the stand-in's queue, and is played while the worker waits for it, where no time is taken.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from tests.standin_driver.control import Standin

from helios.contract.model import PreparedContract
from helios.runtime.device import DeviceOptions, MemoryPlan
from helios.runtime.devices.cuda.device import CudaDevice
from helios.runtime.devices.scripted import ScriptedDevice
from helios.runtime.manifest import BufferClass, Manifest, Program

_TOKEN = (1, -0.5)


class ScriptedCudaDevice(CudaDevice):
    """Implements `helios.runtime.device.Device` for the programs of one contract and manifest.
    Rounds take `round_ns`."""

    def __init__(
        self,
        contract: PreparedContract,
        manifest: Manifest,
        modules: Mapping[str, bytes],
        round_ns: int,
    ) -> None:
        super().__init__(manifest.target, DeviceOptions(), manifest.cuda, modules)
        self._script = _Script(self, contract, manifest)
        self._queued: deque[tuple[int, int]] = deque()
        self._standin = Standin()
        self._round_ns = round_ns

    def allocate(self, plan: MemoryPlan, weights: Mapping[str, memoryview]) -> None:
        """As the device's."""
        super().allocate(plan, weights)
        self._script.allocate(plan, weights)

    def load(self, programs: Sequence[Program]) -> None:
        """As the device's; from then on launches wait."""
        self._script.load(programs)
        super().load(programs)
        self._own = programs
        self._queued.clear()  # the rounds that told the clock
        self._standin.on_round(self._play)
        self._standin.pause(True)
        self._standin.take(self._round_ns)

    def submit(self, program: int, frame: int, sequence: int) -> None:
        """As the device's."""
        super().submit(program, frame, sequence)
        self._queued.append((program, frame))

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Plays what is queued, then looks."""
        self._standin.pause(False)
        self._standin.pause(True)
        return super().wait(sequence, timeout_ms)

    def close(self) -> None:
        """As the device's."""
        self._standin.take(0)
        self._standin.on_round(lambda: None)
        self._standin.pause(False)
        super().close()

    def copy_of(self, buffer: int) -> NDArray[np.uint8]:
        """The GPU's copy of a COMPLETION buffer, which the stand-in keeps on the host."""
        assert self._plan is not None
        assert self._arenas is not None
        nbytes = self._plan.buffers[buffer].nbytes
        block = (ctypes.c_uint8 * nbytes).from_address(self._arenas.addresses[buffer])
        return np.frombuffer(memoryview(block).cast("B"), np.uint8)

    def _play(self) -> None:
        program, frame = self._queued.popleft()
        self._script.run(self._own[program], frame)


class _Script(ScriptedDevice):
    """Answers in the memory of a cuda device."""

    def __init__(
        self, device: ScriptedCudaDevice, contract: PreparedContract, manifest: Manifest
    ) -> None:
        super().__init__(contract, manifest, lambda slot, position: _TOKEN)
        self._device = device

    def allocate(self, plan: MemoryPlan, weights: Mapping[str, memoryview]) -> None:
        """Takes no memory of its own."""
        self._plan = plan

    def view(self, buffer: int, frame: int) -> NDArray[np.uint8]:
        """Inputs where the host writes them, records where kernels do."""
        assert self._plan is not None
        if self._plan.buffers[buffer].buffer.buffer_class is BufferClass.COMPLETION:
            return self._device.copy_of(buffer)
        return self._device.view(buffer, frame)
