"""The reference device: replays a manifest's programs in numpy, launch by launch.

Every buffer has an array of its own (workspace isn't aliased), activations and cache planes are
float32 whatever the manifest declares, and weights are the float32 truth of what is stored.
`submit` runs the program before it returns. Called through the Device protocol by `ModelRuntime`
and, one launch at a time, by `differ`.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from helios.errors import ContractError, ExecutionError
from helios.runtime.capacities import host_memory
from helios.runtime.device import FRAMES, AvailableMemory, MemoryPlan, PlannedBuffer
from helios.runtime.manifest import BufferClass, DType, Launch, Operand, Packing, Program
from helios.runtime.reference.arrays import U8
from helios.runtime.reference.kernels import KERNELS, MATRIX_OPERANDS
from helios.runtime.reference.unpack import PackedMatrix, unpack

_INTEGER_TYPES: Final[dict[DType, type[np.generic]]] = {
    DType.U8: np.uint8,
    DType.I8: np.int8,
    DType.I32: np.int32,
    DType.U32: np.uint32,
    DType.I64: np.int64,
    DType.U64: np.uint64,
}
_TIMED_SEQUENCES: Final = 256


class ReferenceDevice:
    """Implements `helios.runtime.device.Device` in numpy."""

    name = "reference"
    kernel_path = "reference"

    def __init__(self) -> None:
        self._buffers: tuple[PlannedBuffer, ...] = ()
        self._arrays: list[tuple[NDArray[Any], ...]] = []
        self._weights: Mapping[str, memoryview] = {}
        self._operands: dict[tuple[int, int, bool], Any] = {}
        self._programs: list[tuple[list[Callable[[], None]], ...]] = []
        self._completed = 0
        self._launches = 0
        self._failure: ExecutionError | None = None
        self._timings: OrderedDict[int, tuple[int, int]] = OrderedDict()

    def available_memory(self) -> AvailableMemory:
        """The host's."""
        return host_memory()

    def allocate(self, plan: MemoryPlan, weights: Mapping[str, memoryview]) -> None:
        """Gives every buffer but weights a zeroed array, two for framed ones."""
        self._buffers = plan.buffers
        self._weights = weights
        for planned in plan.buffers:
            if planned.buffer.buffer_class is BufferClass.WEIGHT:
                self._arrays.append(())
                continue
            copies = FRAMES if planned.buffer.buffer_class.framed else 1
            count = int(np.prod(planned.shape, dtype=np.int64))
            element = _INTEGER_TYPES.get(planned.buffer.dtype, np.float32)
            self._arrays.append(tuple(np.zeros(count, element) for _ in range(copies)))

    def array(self, buffer: int, frame: int) -> NDArray[Any]:
        """The flat array behind a buffer that is no weight: int types as declared, else f32."""
        copies = self._arrays[buffer]
        return copies[frame if len(copies) > 1 else 0]

    def view(self, buffer: int, frame: int) -> U8:
        """The bytes of a frame's INPUT or COMPLETION buffer."""
        return self.array(buffer, frame).view(np.uint8)

    def load(self, programs: Sequence[Program]) -> None:
        """Binds every launch of every program to its arrays, once for each frame."""
        for program in programs:
            self._programs.append(
                tuple(
                    [
                        self.bind(launch, frame, f"program {program.name}, launch {index}")
                        for index, launch in enumerate(program.launches)
                    ]
                    for frame in range(FRAMES)
                )
            )

    def bind(self, launch: Launch, frame: int, where: str) -> Callable[[], None]:
        """A call that runs one launch on a frame. Raises ContractError, naming `where` and the
        operand, for what this device can't run."""
        kernel = launch.kernel
        if kernel.name not in KERNELS:
            raise ContractError(
                f"the reference has no kernel {kernel.name}",
                where=where,
                remedy="Use a Helios at least as new as the core",
            )
        operands: list[Any] = []
        for spec, operand in zip(kernel.operands, launch.operands, strict=True):
            if operand is None:
                operands.append(None)
                continue
            matrix = MATRIX_OPERANDS.get(kernel.name) == spec.name
            try:
                operands.append(self._resolve(operand, frame, matrix))
            except ValueError as error:
                raise ContractError(
                    f"operand {spec.name} of {kernel.name}: {error}",
                    where=where,
                    remedy="Prepare the core again",
                ) from error
        attributes: dict[str, int | float] = {
            **dict(zip(kernel.integers, launch.integers, strict=True)),
            **dict(zip(kernel.floats, launch.floats, strict=True)),
        }
        return partial(KERNELS[kernel.name], *operands, **attributes)

    def _resolve(self, operand: Operand, frame: int, matrix: bool) -> Any:
        """What a kernel gets for an operand: an array from its offset on, or a PackedMatrix.
        Weights are resolved once and shared, so that each matrix is unpacked once."""
        planned = self._buffers[operand.buffer]
        if planned.buffer.buffer_class is not BufferClass.WEIGHT:
            array = self.array(operand.buffer, frame)
            return array[_element_offset(planned, operand.byte_offset) :]
        key = (operand.buffer, operand.byte_offset, matrix)
        if key not in self._operands:
            raw = self._weight_bytes(planned)[operand.byte_offset :]
            dtype = planned.buffer.dtype
            if matrix:
                self._operands[key] = PackedMatrix(planned.buffer.name, raw, dtype)
            else:
                count = len(raw) // dtype.row_nbytes(1)
                self._operands[key] = unpack(raw, Packing.PLAIN, 1, count, dtype).reshape(-1)
        return self._operands[key]

    def _weight_bytes(self, planned: PlannedBuffer) -> U8:
        buffer = planned.buffer
        raw = np.frombuffer(self._weights[buffer.resource], np.uint8)
        if buffer.offset + planned.nbytes > len(raw):
            raise ValueError(f"buffer {buffer.name} ends past its resource of {len(raw)} bytes")
        return raw[buffer.offset : buffer.offset + planned.nbytes]

    def submit(self, program: int, frame: int, sequence: int) -> None:
        """Runs a program now. A failure is kept and raised by `completed` and `wait`."""
        start = time.monotonic_ns()
        try:
            for launch in self._programs[program][frame]:
                launch()
                self._launches += 1
        except Exception as error:  # whatever numpy raises is an execution failure to the caller
            self._failure = ExecutionError(
                f"the reference failed: {error}",
                where=f"submission {sequence}",
                remedy="Report it with the core's digest",
            )
            self._failure.__cause__ = error
            return
        self._completed = sequence
        self._timings[sequence] = (start, time.monotonic_ns())
        if len(self._timings) > _TIMED_SEQUENCES:
            self._timings.popitem(last=False)

    def completed(self) -> int:
        """The last sequence that has run; 0 before the first. Raises ExecutionError if one
        failed."""
        if self._failure is not None:
            raise self._failure
        return self._completed

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Whether `sequence` has run; there is nothing to wait for."""
        return self.completed() >= sequence

    def timing(self, sequence: int) -> tuple[int, int]:
        """(start_ns, end_ns) on time.monotonic_ns's clock of one of the last 256 sequences."""
        if sequence not in self._timings:
            raise ExecutionError(
                f"sequence {sequence} is not among the last {_TIMED_SEQUENCES}",
                where="reference device",
                remedy="Read a round's timing soon after it completes",
            )
        return self._timings[sequence]

    def scratch_nbytes(self) -> int:
        """None is kept."""
        return 0

    def load_ns(self) -> dict[str, int]:
        """Nothing is told."""
        return {}

    def launches(self) -> int:
        """Launches executed so far."""
        return self._launches

    def read_buffer(self, buffer: int, frame: int) -> NDArray[Any]:
        """A copy of a buffer in its resolved shape. Raises ExecutionError for a packed weight."""
        planned = self._buffers[buffer]
        if planned.buffer.buffer_class is not BufferClass.WEIGHT:
            return self.array(buffer, frame).reshape(planned.shape).copy()
        if planned.buffer.packing is not Packing.PLAIN:
            raise ExecutionError(
                "a packed weight has no plain values to read",
                where=f"buffer {planned.buffer.name}",
                remedy="Unpack it with helios.runtime.reference.unpack",
            )
        raw = self._weight_bytes(planned)
        rows = int(np.prod(planned.shape[:-1], dtype=np.int64))
        return unpack(raw, Packing.PLAIN, rows, planned.shape[-1], planned.buffer.dtype).reshape(
            planned.shape
        )

    def row_nbytes(self, buffer: int) -> int:
        """Of the array, whose elements may be wider than declared."""
        shape = self._buffers[buffer].buffer.shape
        return int(np.prod(shape, dtype=np.int64)) * self.array(buffer, 0).itemsize

    def read_rows(self, buffer: int, first: int, into: U8) -> None:
        """Copies rows out."""
        start = first * self.row_nbytes(buffer)
        into[:] = self.view(buffer, 0)[start : start + into.nbytes]

    def write_rows(self, buffer: int, first: int, content: U8) -> None:
        """Copies rows in."""
        start = first * self.row_nbytes(buffer)
        self.view(buffer, 0)[start : start + content.nbytes] = content

    def close(self) -> None:
        """Drops every array. Idempotent."""
        self._programs.clear()
        self._operands.clear()
        self._arrays.clear()
        self._weights = {}


def _element_offset(planned: PlannedBuffer, byte_offset: int) -> int:
    """The element at a declared byte offset. Raises ValueError where it is inside an element, or
    inside a row of a blocked format."""
    dtype = planned.buffer.dtype
    width = 1 if dtype.activation_format is None else planned.shape[-1]
    unit, rest = divmod(byte_offset, dtype.row_nbytes(width))
    if rest or byte_offset >= max(planned.nbytes, 1):
        raise ValueError(f"byte offset {byte_offset} is not one of buffer {planned.buffer.name}")
    return unit * width
