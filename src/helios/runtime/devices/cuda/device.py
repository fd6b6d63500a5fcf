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

from helios.errors import ContractError, ExecutionError
from helios.runtime.buffer_values import buffer_values
from helios.runtime.device import AvailableMemory, DeviceOptions, MemoryPlan
from helios.runtime.devices.cuda.arenas import Arenas, lay_out
from helios.runtime.devices.cuda.clock import GpuClock
from helios.runtime.devices.cuda.driver import NOT_READY, SUCCESS, DriverError, failure
from helios.runtime.devices.cuda.functions import Functions
from helios.runtime.devices.cuda.gpu import Gpu
from helios.runtime.devices.cuda.loading import LoadedProgram, Loader
from helios.runtime.devices.cuda.pinned import TIMED_SEQUENCES, Frames
from helios.runtime.devices.cuda.transfers import read_in_place
from helios.runtime.devices.cuda.weights import upload
from helios.runtime.manifest import CudaTarget, Program
from helios.thread_turns import sleep_exactly

# Of the memory that everything else leaves, what the cache takes where nobody says: the rest is
# for graphs, modules and what kernels spill.
CACHE_SHARE: Final = 0.9
# Between two looks at a round's word, and at what the driver says of the stream.
_LOOK_S: Final = 20e-6
_QUERY_NS: Final = 5_000_000
_DRAIN_S: Final = 0.001
_CALIBRATING_ROUNDS: Final = 8
# Above every real sequence, so that none of these is taken for one.
_CALIBRATING_SEQUENCE: Final = 1 << 40


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
        self.name = name
        self.kernel_path = name.replace(":", "/")
        self._target = target
        self._limit_ns = int(options.round_limit_s * 1e9)
        self._gpu = Gpu(name, options.ordinal)
        self._functions = Functions(self._gpu, target, modules)
        self._plan: MemoryPlan | None = None
        self._arenas: Arenas | None = None
        self._frames: Frames | None = None
        self._programs: list[LoadedProgram] = []
        self._in_place: frozenset[int] = frozenset()
        self._scratch_nbytes = 0
        self._clock = GpuClock()
        self._failure: ExecutionError | None = None
        self._copying = Lock()
        sleep_exactly()
        self._thread = get_ident()
        self._launches = 0
        self._submitted = 0
        self._submitted_ns = [0] * TIMED_SEQUENCES
        self._seen = 0  # the last sequence that a call here has found completed, and when
        self._seen_ns = 0
        self._closed = False
        # Bound once, since every round takes them.
        self._launch = self._gpu.driver.cuGraphLaunch
        self._stream = self._gpu.stream

    # ------------------------------------------------------------ loading

    def available_memory(self) -> AvailableMemory:
        """Of the GPU, which takes a copy of the weights too."""
        return AvailableMemory(self._gpu.free_nbytes(), holds_weights=True, cache_share=CACHE_SHARE)

    def allocate(self, plan: MemoryPlan, weights: Mapping[str, memoryview]) -> None:
        """Takes all memory, then brings the weights to the GPU."""
        self._plan = plan
        sizes = {name: content.nbytes for name, content in weights.items()}
        self._arenas = Arenas(self._gpu, lay_out(plan, sizes))
        self._frames = Frames(self._gpu, plan)
        upload(self._gpu, weights, self._arenas.resource_addresses)
        self._completed_word = self._frames.completed
        self._sequence_words = self._frames.sequences

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
            self._gpu, self._plan, self._arenas, self._frames, self._functions, self._in_place
        )
        self._programs = loader.load(self._target, programs)
        self._calibrate(len(programs))
        self._gpu.call("loading programs", self._gpu.driver.cuStreamSynchronize, self._stream)
        self._scratch_nbytes = max(free - self._gpu.free_nbytes(), loader.tables_nbytes)

    # ------------------------------------------------------------ rounds

    def submit(self, program: int, frame: int, sequence: int) -> None:
        """Queues a program's graph."""
        if self._failure is not None:
            raise self._failure
        if get_ident() != self._thread:
            self._enter_thread()
        loaded = self._programs[program]
        self._sequence_words[frame][0] = sequence
        self._submitted_ns[sequence % TIMED_SEQUENCES] = time.monotonic_ns()
        (status,) = self._launch(loaded.executables[frame], self._stream)
        if status != SUCCESS:
            raise self._fail(failure(self._gpu.driver, int(status), f"submitting round {sequence}"))
        self._submitted = sequence
        self._launches += loaded.launches

    def completed(self) -> int:
        """The last sequence that has run."""
        if self._failure is not None:
            raise self._failure
        completed: int = self._completed_word[0]
        if completed > self._seen:
            self._seen, self._seen_ns = completed, time.monotonic_ns()
        return completed

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Looks at the word again and again, sleeping without the GIL."""
        if self.completed() >= sequence:
            return True
        if get_ident() != self._thread:
            self._enter_thread()
        word, sleep, clock = self._completed_word, time.sleep, time.monotonic_ns
        deadline = clock() + timeout_ms * 1_000_000
        query = clock() + _QUERY_NS
        while word[0] < sequence:
            sleep(_LOOK_S)
            now = clock()
            if now >= query:
                self._look_for_failure(now)
                query = now + _QUERY_NS
            if now >= deadline:
                break
        return self.completed() >= sequence

    def timing(self, sequence: int) -> tuple[int, int]:
        """(start_ns, end_ns) as the GPU stamped them, on the host's clock."""
        assert self._frames is not None
        if not self._submitted - TIMED_SEQUENCES < sequence <= self.completed():
            raise ExecutionError(
                f"sequence {sequence} is not among the last {TIMED_SEQUENCES}",
                where="cuda device",
                remedy="Read a round's timing soon after it completes",
            )
        start, end = self._frames.times[sequence % TIMED_SEQUENCES].tolist()
        submitted_ns = self._submitted_ns[sequence % TIMED_SEQUENCES]
        seen_ns = self._seen_ns if sequence <= self._seen else time.monotonic_ns()
        return self._clock.times(submitted_ns, start, end, seen_ns)

    def scratch_nbytes(self) -> int:
        """Device memory that graphs, modules and tables take."""
        return self._scratch_nbytes

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
        if self._failure is not None:
            raise self._failure
        if not host.nbytes:
            return
        gpu, driver = self._gpu, self._gpu.driver
        place = host if host.flags.c_contiguous else np.ascontiguousarray(host)
        try:
            with self._copying:
                gpu.make_current()
                if to_gpu:
                    gpu.call(
                        "copying to the GPU", driver.cuMemcpyHtoDAsync,
                        address, place.ctypes.data, place.nbytes, gpu.copies,
                    )  # fmt: skip
                else:
                    gpu.call(
                        "copying from the GPU", driver.cuMemcpyDtoHAsync,
                        place.ctypes.data, address, place.nbytes, gpu.copies,
                    )  # fmt: skip
                gpu.finish_copies()
        except DriverError as error:
            raise self._fail(error) from None
        if place is not host and not to_gpu:
            host[:] = place

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Waits for what is queued, then gives everything back. Where the GPU doesn't answer any
        more, the memory stays with the process."""
        if self._closed:
            return
        self._closed = True
        with suppress(DriverError):
            self._gpu.make_current()
        if not self._drained():
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
            self._completed_word = self._sequence_words = None  # type: ignore[assignment]
            self._frames.close()
        self._gpu.close()

    def _drained(self) -> bool:
        """Waits until nothing runs any more, because all has ended or the context is lost; False
        where it doesn't come to that."""
        hung = self._failure is not None and not isinstance(self._failure, DriverError)
        deadline = time.monotonic_ns() + (0 if hung else self._limit_ns)
        while int(self._gpu.driver.cuStreamQuery(self._stream)[0]) == NOT_READY:
            if time.monotonic_ns() >= deadline:
                return False
            time.sleep(_DRAIN_S)
        return True

    # ------------------------------------------------------------ failures

    def _look_for_failure(self, now_ns: int) -> None:
        """Raises what the driver knows of the rounds, or that one doesn't end."""
        (status,) = self._gpu.driver.cuStreamQuery(self._stream)
        if self._completed_word[0] >= self._submitted:
            return
        if status == SUCCESS:
            raise self._fail(
                ExecutionError(
                    "its kernels ended without releasing its sequence",
                    where=f"round {self._completed_word[0] + 1}",
                    remedy="Prepare the core again with this version of Ignition",
                )
            )
        if status != NOT_READY:
            running = self._completed_word[0] + 1
            raise self._fail(failure(self._gpu.driver, int(status), f"running round {running}"))
        began = max(
            self._seen_ns, self._submitted_ns[(self._completed_word[0] + 1) % TIMED_SEQUENCES]
        )
        if now_ns - began > self._limit_ns:
            raise self._fail(
                ExecutionError(
                    f"hasn't ended after {self._limit_ns / 1e9:.0f} s",
                    where=f"round {self._completed_word[0] + 1}",
                    remedy="Start again; where it comes back, report it with the core's digest",
                )
            )

    def _fail(self, error: ExecutionError) -> ExecutionError:
        """Keeps the first failure of the device; returns it."""
        if self._failure is None:
            self._failure = error
        return self._failure

    def _enter_thread(self) -> None:
        """The context in another thread than before, which sleeps as briefly as it asks to."""
        self._gpu.make_current()
        sleep_exactly()
        self._thread = get_ident()

    def _calibrate(self, program: int) -> None:
        """Runs rounds that move nothing, and leaves the words as they were."""
        for number in range(_CALIBRATING_ROUNDS):
            sequence = _CALIBRATING_SEQUENCE + number
            before_ns = time.monotonic_ns()
            self.submit(program, 0, sequence)
            while self._completed_word[0] < sequence:
                now = time.monotonic_ns()
                if now - before_ns > _QUERY_NS:
                    self._look_for_failure(now)
            assert self._frames is not None
            start, end = self._frames.times[sequence % TIMED_SEQUENCES].tolist()
            self._clock.calibrate(before_ns, start, end, time.monotonic_ns())
        self._completed_word[0] = 0
        self._submitted = self._seen = self._launches = 0
