"""The `cpu` device: host memory and the native replayer.

Arenas are anonymous mappings, zero until touched, so a large cache costs what is used of it.
Weights are used where they lie in the mapped core. Operand addresses are resolved once, for each
(program, frame), into the arrays that the native library takes. `ModelRuntime` is the caller.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from helios import _native
from helios.errors import ContractError, ExecutionError
from helios.runtime.buffer_values import buffer_values
from helios.runtime.capacities import host_memory
from helios.runtime.device import FRAMES, AvailableMemory, DeviceOptions, MemoryPlan
from helios.runtime.manifest import BufferClass, Program

HUGE_PAGE_NBYTES: Final = 2 << 20
_ABSENT: Final = -1  # the place after the last buffer
_LIBRARY_KERNELS: Final = {name: i for i, (name, *_) in enumerate(_native.catalogue())}


class CpuDevice:
    """Implements `helios.runtime.device.Device` on the host's cores."""

    name = "cpu"

    def __init__(self, options: DeviceOptions) -> None:
        available = _native.instruction_sets()
        chosen = options.instruction_set or available[0]
        if chosen not in available:
            raise ExecutionError(
                f"this machine doesn't run {chosen!r}",
                where="instruction set",
                remedy=f"Choose one of {', '.join(available)}",
            )
        self.kernel_path = f"cpu/{chosen}"
        try:
            self._replayer = _native.Replayer(options.thread_count, chosen)
        # Out of bounds, more than a number of the library can be, or refused by the system.
        except (ValueError, TypeError, RuntimeError) as error:
            found = "too many" if isinstance(error, TypeError) else str(error)
            raise ExecutionError(
                found, where="threads", remedy="Choose about as many as the machine has cores"
            ) from error
        self._plan: MemoryPlan | None = None
        # Views keep their mappings alive. A buffer has one, or one for each frame.
        self._views: list[tuple[NDArray[np.uint8], ...]] = []
        self._extents: list[tuple[NDArray[np.uint64], NDArray[np.uint64]]] = []
        self._program_ids: list[tuple[int, ...]] = []

    def available_memory(self) -> AvailableMemory:
        """The host's."""
        return host_memory()

    def allocate(self, plan: MemoryPlan, weights: Mapping[str, memoryview]) -> None:
        """Maps every buffer; the workspace is one arena."""
        self._plan = plan
        # Huge pages for the arena, which every round touches; a cache page must cost only itself.
        arena = _anonymous(plan.workspace_nbytes, "workspace", huge=True)
        content = {name: np.frombuffer(view, np.uint8) for name, view in weights.items()}
        for planned in plan.buffers:
            buffer = planned.buffer
            views: tuple[NDArray[np.uint8], ...]
            if buffer.buffer_class is BufferClass.WEIGHT:
                views = (content[buffer.resource][buffer.offset :][: planned.nbytes],)
            elif buffer.buffer_class is BufferClass.WORKSPACE:
                views = (arena[buffer.offset :][: planned.nbytes],)
            else:
                copies = FRAMES if buffer.buffer_class.framed else 1
                views = tuple(_anonymous(planned.nbytes, buffer.name) for _ in range(copies))
            self._views.append(views)

    def view(self, buffer: int, frame: int) -> NDArray[np.uint8]:
        """A frame's copy of an INPUT or COMPLETION buffer."""
        return self._views[buffer][frame]

    def load(self, programs: Sequence[Program]) -> None:
        """Registers every program, once for each frame."""
        self._extents = [self._frame_extents(frame) for frame in range(FRAMES)]
        for program in programs:
            self._program_ids.append(tuple(self._resolve(program)))

    def submit(self, program: int, frame: int, sequence: int) -> None:
        """Queues a program on the pool."""
        self._replayer.submit(self._program_ids[program][frame], sequence)

    def completed(self) -> int:
        """The last sequence that has run."""
        return self._replayer.completed()

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Waits without the GIL."""
        return self._replayer.wait(sequence, timeout_ms)

    def timing(self, sequence: int) -> tuple[int, int]:
        """(start_ns, end_ns) as the replayer measured them."""
        return self._replayer.timing(sequence)

    def scratch_nbytes(self) -> int:
        """The pool's scratch, all threads together."""
        return self._replayer.scratch_nbytes()

    def load_ns(self) -> dict[str, int]:
        """Nothing is told."""
        return {}

    def launches(self) -> int:
        """Launches begun so far."""
        return self._replayer.launches()

    def read_buffer(self, buffer: int, frame: int) -> NDArray[Any]:
        """A copy of the values, decoded."""
        assert self._plan is not None
        views = self._views[buffer]
        return buffer_values(self._plan.buffers[buffer], views[frame % len(views)])

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
        """Ends the threads, then lets go of the memory."""
        self._replayer.close()
        self._views = []

    def _resolve(self, program: Program) -> list[int]:
        """Registers a program's launches once for each frame; returns the library's numbers."""
        kernels: list[int] = []
        buffers: list[int] = []
        offsets: list[int] = []
        integers: list[int] = []
        floats: list[float] = []
        starts: list[tuple[int, int, int]] = [(0, 0, 0)]
        for launch in program.launches:
            if launch.kernel.name not in _LIBRARY_KERNELS:
                raise ContractError(
                    f"the native library has no kernel {launch.kernel.name}",
                    where=f"program {program.name}",
                    remedy="Run the core on the device that it was prepared for",
                )
            kernels.append(_LIBRARY_KERNELS[launch.kernel.name])
            for operand in launch.operands:
                buffers.append(_ABSENT if operand is None else operand.buffer)
                offsets.append(0 if operand is None else operand.byte_offset)
            integers.extend(launch.integers)
            floats.extend(launch.floats)
            starts.append((len(buffers), len(integers), len(floats)))
        operand_starts, integer_starts, float_starts = np.array(starts, np.int32).T.copy()
        places, skipped = np.array(buffers, np.int64), np.array(offsets, np.uint64)
        try:
            return [
                self._replayer.add_program(
                    np.array(kernels, np.int32),
                    operand_starts,
                    addresses[places] + skipped,
                    nbytes[places] - skipped,
                    integer_starts,
                    np.array(integers, np.int64),
                    float_starts,
                    np.array(floats, np.float64),
                    # Also where nobody closes the device: its threads use the memory until they
                    # end.
                    owners=self._views,
                )
                for addresses, nbytes in self._extents
            ]
        except ValueError as error:
            raise ContractError(str(error), where=f"program {program.name}") from error
        except RuntimeError as error:
            raise ExecutionError(
                str(error),
                where=f"program {program.name}",
                remedy="Ask for fewer threads, or free memory",
            ) from error

    def _frame_extents(self, frame: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Address and size of every buffer in a frame; at the end nothing, for absent operands."""
        views = [copies[frame % len(copies)] for copies in self._views]
        addresses = [view.ctypes.data for view in views]
        nbytes = [view.nbytes for view in views]
        return np.array([*addresses, 0], np.uint64), np.array([*nbytes, 0], np.uint64)


def _anonymous(nbytes: int, name: str, *, huge: bool = False) -> NDArray[np.uint8]:
    """Zeroed page-aligned memory that takes real memory only where it is touched."""
    try:
        mapping = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError, OverflowError) as error:
        raise ExecutionError(
            f"no memory for its {nbytes} bytes ({error})",
            where=f"buffer {name}",
            remedy="Ask for fewer request slots or a smaller cache",
        ) from error
    if huge and nbytes >= HUGE_PAGE_NBYTES:
        with suppress(OSError):  # a kernel without transparent huge pages
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapping, np.uint8, count=nbytes)
