"""Trials in memory that is taken array by array, so that compute-sanitizer's memcheck finds what
reads past an array's end. Without it nothing is different.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from helios.runtime.device import DeviceOptions
from helios.runtime.devices.cuda.device import CudaDevice
from helios.runtime.manifest import BufferClass, Program
from tests.gpu.executing import Executor
from tests.gpu.placing import Bytes, Placed
from tests.gpu.trials import Run
from tests.native.launches import Array


class TightDevice(CudaDevice):
    """Workspace buffers of its programs each have memory of their own."""

    def load(self, programs: Sequence[Program]) -> None:
        assert self._plan is not None
        assert self._arenas is not None
        names = tuple(f"{program.name}/" for program in programs)
        for index, planned in enumerate(self._plan.buffers):
            buffer = planned.buffer
            if buffer.buffer_class is BufferClass.WORKSPACE and buffer.name.startswith(names):
                self._arenas.addresses[index] = self._arenas.take(buffer.name, buffer.nbytes)
        super().load(programs)


class TightExecutor(Executor):
    """Brings arrays to their own places."""

    device_type = TightDevice

    def __init__(
        self, bundle: Path, trials: Sequence[str], options: DeviceOptions, *, dry: bool
    ) -> None:
        super().__init__(bundle, trials, options, dry=dry)
        self._index = {buffer.name: index for index, buffer in enumerate(self._buffers)}

    def _execute_run(
        self, program: int, run: Run, placed: Placed
    ) -> tuple[list[str], dict[int, Array]]:
        self._placed = placed
        return super()._execute_run(program, run, placed)

    def _bring(self, before: Bytes) -> None:
        for place in self._placed.places:
            self.device._copy(before[place.where], self._address(place.name), to_gpu=True)

    def _fetch(self, before: Bytes) -> Bytes:
        after = before.copy()
        for place in self._placed.places:
            self.device._copy(after[place.where], self._address(place.name), to_gpu=False)
        return after

    def _address(self, name: str) -> int:
        assert self.device._arenas is not None
        return self.device._arenas.addresses[self._index[name]]
