"""The `cuda` device: rounds as graph launches on one GPU.

Memory, modules and graphs are made at load; a round is a write of its sequence, one launch, and a
look at a word of pinned memory that the round's last kernel releases. Nothing is allocated while
rounds run. An error of the GPU, or a round that doesn't end, is found while somebody waits, kept,
and raised by every later call. `ModelRuntime` is the caller.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock, get_ident
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from helios.errors import ContractError
from helios.phases import Phases
from helios.runtime.buffer_values import buffer_values
from helios.runtime.device import AvailableMemory, DeviceOptions, MemoryPlan
from helios.runtime.devices.cuda.arenas import Arenas, lay_out
from helios.runtime.devices.cuda.draining import drained
from helios.runtime.devices.cuda.driver import SUCCESS, DriverError, failure
from helios.runtime.devices.cuda.functions import Functions
from helios.runtime.devices.cuda.gpu import Gpu, in_thread
from helios.runtime.devices.cuda.loading import LoadedProgram, Loader
from helios.runtime.devices.cuda.pinned import FrameLayout, Frames
from helios.runtime.devices.cuda.sizes import say_planned, say_programs
from helios.runtime.devices.cuda.transfers import read_in_place
from helios.runtime.devices.cuda.watch import (
    CALIBRATING_SEQUENCE,
    QUERY_NS,
    RoundWatch,
    name_of,
)
from helios.runtime.devices.cuda.weights import Staging, Upload
from helios.runtime.manifest import CudaTarget, Program
from helios.thread_turns import sleep_exactly

# Of the memory that everything else leaves, what the cache takes where nobody says: the rest is
# for graphs, modules and what kernels spill.
CACHE_SHARE: Final = 0.9
_CALIBRATING_ROUNDS: Final = 8


class CudaDevice:
    """Implements `helios.runtime.device.Device` on one NVIDIA GPU."""

    def __init__(
        self,
        name: str,
        options: DeviceOptions,
        target: CudaTarget | None,
        modules: Mapping[str, bytes],
    ) -> None:
        if target is None:
            raise ContractError("the manifest has no cuda functions", where=f"target {name}")
        self._phases = phases = Phases()
        self.name = name
        self.kernel_path = name.replace(":", "/")
        self._target = target
        self._limit_ns = int(options.round_limit_s * 1e9)
        with phases("context"):
            self._gpu = Gpu(name, options.ordinal)
        self._functions = Functions(self._gpu, target, modules, phases)
        self._plan: MemoryPlan | None = None
        self._arenas: Arenas | None = None
        self._frames: Frames | None = None
        self._upload: Upload | None = None
        self._programs: list[LoadedProgram] = []
        self._in_place: frozenset[int] = frozenset()
        self._scratch_nbytes = 0
        self._copying = Lock()
        sleep_exactly()
        self._thread = get_ident()
        self._launches = 0
        self._drain_by_ns: int | None = None
        self._closed = False
        # Bound once, since every round takes them.
        self._launch = self._gpu.driver.cuGraphLaunch
        self._stream = self._gpu.stream

    # ------------------------------------------------------------ loading

    def available_memory(self) -> AvailableMemory:
        """Of the GPU, which takes a copy of the weights too."""
        self._enter_thread()  # it may have been opened in another
        return AvailableMemory(self._gpu.free_nbytes(), holds_weights=True, cache_share=CACHE_SHARE)

    def allocate(self, plan: MemoryPlan, weights: Mapping[str, memoryview]) -> None:
        """Takes all memory; weights travel to the GPU from then on, until `load` is done."""
        self._enter_thread()
        self._plan = plan
        sizes = {name: content.nbytes for name, content in weights.items()}
        layout = lay_out(plan, sizes)
        frames_nbytes = FrameLayout(plan).nbytes
        say_planned(self._gpu, layout, frames_nbytes, Staging.of(sizes.values()).nbytes)
        with self._phases("memory"):
            self._arenas = Arenas(self._gpu, layout)
            self._frames = Frames(self._gpu, plan)
        self._watch = RoundWatch(self._gpu, self._frames, self._limit_ns)
        self._sequences = self._frames.sequences
        self._upload = Upload(self._gpu, weights, self._arenas.resource_addresses, self._phases)

    def view(self, buffer: int, frame: int) -> NDArray[np.uint8]:
        """A frame's copy of an INPUT or COMPLETION buffer, in pinned memory."""
        assert self._frames is not None
        return self._frames.view(buffer, frame)

    def load(self, programs: Sequence[Program]) -> None:
        """Builds every program's graphs, then tells the GPU's clock by rounds that do nothing."""
        assert self._plan is not None
        assert self._arenas is not None
        assert self._frames is not None
        free = self._gpu.free_nbytes()
        self._in_place = read_in_place(programs, self._plan)
        loader = Loader(
            self._gpu,
            self._plan,
            self._arenas,
            self._frames,
            self._functions,
            self._in_place,
            self._phases,
        )
        self._programs = loader.load(self._target, programs)
        assert self._upload is not None
        with self._phases("weights_wait"):
            self._upload.finish()
        with self._phases("clock"):
            self._calibrate(len(programs))
            self._gpu.call("loading programs", self._gpu.driver.cuStreamSynchronize, self._stream)
        self._scratch_nbytes = max(free - self._gpu.free_nbytes(), loader.tables_nbytes)
        say_programs(self._gpu, self._scratch_nbytes)

    # ------------------------------------------------------------ rounds

    def submit(self, program: int, frame: int, sequence: int) -> None:
        """Queues a program's graph."""
        watch = self._watch
        if watch.failure is not None:
            raise watch.failure
        if in_thread.gpu is not self._gpu:
            self._gpu.make_current()
        loaded = self._programs[program]
        self._sequences[frame][0] = sequence
        watch.begin(sequence, program)
        (status,) = self._launch(loaded.executables[frame], self._stream)
        if status != SUCCESS:
            raise watch.fail(
                failure(self._gpu.driver, int(status), f"submitting {name_of(sequence)}")
            )
        watch.begun(sequence)
        self._launches += loaded.launches

    def completed(self) -> int:
        """The last sequence that has run."""
        return self._watch.completed()

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Looks at the word of rounds, sleeping without the GIL."""
        if get_ident() != self._thread:
            self._enter_thread()  # the context is set where the driver is asked
        return self._watch.wait(sequence, timeout_ms)

    def timing(self, sequence: int) -> tuple[int, int]:
        """(start_ns, end_ns) as the GPU stamped them, on the host's clock."""
        return self._watch.timing(sequence)

    def scratch_nbytes(self) -> int:
        """Device memory that graphs, modules and tables take."""
        return self._scratch_nbytes

    def load_ns(self) -> dict[str, int]:
        """The driver's parts, and what makes graphs."""
        return self._phases.ns

    def launches(self) -> int:
        """Kernels of all rounds begun so far: a running graph doesn't say how far it is."""
        return self._launches

    # ------------------------------------------------------------ contents

    def read_buffer(self, buffer: int, frame: int) -> NDArray[Any]:
        """A copy of the values, decoded."""
        assert self._plan is not None
        assert self._arenas is not None
        planned = self._plan.buffers[buffer]
        if planned.buffer.buffer_class.framed:
            return buffer_values(planned, self.view(buffer, frame))
        content = np.empty(planned.nbytes, np.uint8)
        self._copy(content, self._arenas.addresses[buffer], to_gpu=False)
        return buffer_values(planned, content)

    def row_nbytes(self, buffer: int) -> int:
        """As declared."""
        assert self._plan is not None
        return self._plan.buffers[buffer].buffer.nbytes

    def read_rows(self, buffer: int, first: int, into: NDArray[np.uint8]) -> None:
        """Copies rows out, beside the rounds in flight."""
        self._copy(into, self._row_address(buffer, first), to_gpu=False)

    def write_rows(self, buffer: int, first: int, content: NDArray[np.uint8]) -> None:
        """Copies rows in; they are there for every round submitted after this returns."""
        self._copy(content, self._row_address(buffer, first), to_gpu=True)

    def _row_address(self, buffer: int, first: int) -> int:
        assert self._arenas is not None
        return self._arenas.addresses[buffer] + first * self.row_nbytes(buffer)

    def _copy(self, host: NDArray[np.uint8], address: int, *, to_gpu: bool) -> None:
        """Copies between the host's memory and the GPU's; returns once it is done."""
        if self._watch.failure is not None:
            raise self._watch.failure
        if not host.nbytes:
            return
        gpu, driver = self._gpu, self._gpu.driver
        place = host if host.flags.c_contiguous else np.ascontiguousarray(host)
        try:
            with self._copying:
                gpu.make_current()
                copied = place.nbytes, gpu.copies
                if to_gpu:
                    ends = address, place.ctypes.data
                    gpu.call("copying to the GPU", driver.cuMemcpyHtoDAsync, *ends, *copied)
                else:
                    ends = place.ctypes.data, address
                    gpu.call("copying from the GPU", driver.cuMemcpyDtoHAsync, *ends, *copied)
                gpu.finish_copies()
        except DriverError as error:
            raise self._watch.fail(error) from None
        if place is not host and not to_gpu:
            host[:] = place

    # ------------------------------------------------------------ the end

    def drain_by(self, deadline_ns: int) -> None:
        """`close` waits until then at most."""
        self._drain_by_ns = deadline_ns

    def close(self) -> None:
        """Waits for what is queued, then gives everything back. Where the GPU doesn't answer any
        more, the memory stays with the process."""
        if self._closed:
            return
        self._closed = True
        if self._upload is not None:
            self._upload.over()
        with suppress(DriverError):
            self._gpu.make_current()
        watch = None if self._frames is None else self._watch
        if not drained(self._gpu, watch, self._limit_ns, self._drain_by_ns):
            return
        driver = self._gpu.driver
        for program in self._programs:
            for executable in program.executables:
                driver.cuGraphExecDestroy(executable)
        self._programs = []
        self._functions.close()
        if self._arenas is not None:
            self._arenas.close()
        if self._frames is not None:
            self._frames.close()
        self._gpu.close()

    def _enter_thread(self) -> None:
        """The context in another thread than before, which sleeps as briefly as it asks to."""
        self._gpu.make_current()
        sleep_exactly()
        self._thread = get_ident()

    def _calibrate(self, program: int) -> None:
        """Tells the GPU's clock by rounds that move nothing, and leaves no trace of them."""
        watch = self._watch
        # As if the round before the first one had run: what runs is found by what has.
        watch.word[0] = CALIBRATING_SEQUENCE - 1
        for number in range(_CALIBRATING_ROUNDS):
            sequence = CALIBRATING_SEQUENCE + number
            self.submit(program, 0, sequence)
            query = time.monotonic_ns() + QUERY_NS
            while watch.word[0] < sequence:  # without sleep, which would blur it
                now = time.monotonic_ns()
                if now >= query:
                    watch.look(now)
            watch.calibrate(sequence)
        watch.forget()
        self._launches = 0
