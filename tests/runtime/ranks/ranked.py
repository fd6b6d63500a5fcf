"""What tests of ranks share: how a core is asked, other weights, a device that fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from helios.core import OpenedCore
from helios.errors import ExecutionError
from helios.runtime import Capacities, DeviceOptions, NativeModel
from helios.runtime.device import AvailableMemory, MemoryPlan
from helios.runtime.devices.null import NullDevice
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rank_group import RankGroup
from helios.runtime.rounds import Completion, Round
from tests.runtime.test_model_runtime import (
    SECOND_MS,
)

ONE_THREAD = DeviceOptions(threads=1)
SMALL = Capacities(cache_nbytes=24 * 64)
WriteCore = Callable[..., OpenedCore]


def run(runtime: ModelRuntime | RankGroup, name: str, *lanes: object) -> Completion:
    program = next(p.index for p in runtime.geometry.programs if p.name == name)
    sequence = runtime.submit(Round(program, lanes))  # type: ignore[arg-type]
    assert runtime.wait(sequence, SECOND_MS)
    return runtime.read(sequence)


def shifted(content: bytes) -> bytes:
    """Other weights: each token gives what another one gave."""
    packed = np.frombuffer(content, np.float32).reshape(4, 8, 16)
    return np.roll(packed, 1, axis=2).tobytes()


class FailingDevice(NullDevice):
    """Runs nothing, and fails where it is told to."""

    def __init__(self, fails: str = "", *, completes: bool = True, free: int = 1 << 30) -> None:
        super().__init__()
        self._fails = fails
        self._completes = completes
        self._free = free
        self.closed = False

    def available_memory(self) -> AvailableMemory:
        return AvailableMemory(self._free)

    def allocate(self, plan: MemoryPlan, weights: Mapping[str, memoryview]) -> None:
        super().allocate(plan, weights)
        self._fail("allocate")

    def submit(self, program: int, frame: int, sequence: int) -> None:
        self._fail("submit")
        super().submit(program, frame, sequence)

    def completed(self) -> int:
        return super().completed() if self._completes else 0

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        self._fail("wait")
        return self._completes

    def close(self) -> None:
        self.closed = True

    def _fail(self, what: str) -> None:
        if self._fails == what:
            raise ExecutionError("is lost", where=f"device, {what}", remedy="Start again")


def load_on(core: OpenedCore, *devices: NullDevice, **capacities: int) -> NativeModel:
    return NativeModel.load(core, devices=devices, capacities=Capacities(**capacities))
