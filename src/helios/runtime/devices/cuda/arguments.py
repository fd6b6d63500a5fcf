"""A node's arguments as the driver takes them: a 64-bit slot each, and tensor maps.

Resolved once, at load. Where a program reads an input in place, that argument's address is another
in the other frame, so a node has slots for each frame: the same ones where nothing differs.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from helios.contract.fields import INT32_MAX
from helios.errors import ContractError
from helios.runtime.device import FRAMES, MemoryPlan
from helios.runtime.devices.cuda.functions import LoadedFunction
from helios.runtime.devices.cuda.gpu import Gpu
from helios.runtime.manifest import (
    CudaArgument,
    CudaInteger,
    CudaRowCount,
    CudaTensorMap,
    DType,
    Operand,
)
from helios.runtime.node_decoder import ARGUMENTS_LIMIT

_MASK: Final = (1 << 64) - 1
# A tensor map takes five, and the compiler adds two.
_SLOTS: Final = 5 * ARGUMENTS_LIMIT + 2
_SLOT_NBYTES: Final = 8
_ELEMENTS: Final = {
    DType.U8: "UINT8",
    DType.I8: "UINT8",
    DType.I32: "INT32",
    DType.U32: "UINT32",
    DType.I64: "INT64",
    DType.U64: "UINT64",
    DType.F16: "FLOAT16",
    DType.BF16: "BFLOAT16",
    DType.F32: "FLOAT32",
}


@dataclass(slots=True)
class ResolvedNode:
    """A kernel node: `values` hold a slot a parameter, for each frame, `maps` (position, address of
    the map) where one is a tensor map."""

    function: LoadedFunction
    grid: tuple[int, int, int]
    values: tuple[list[int], ...]
    programmatic: bool
    maps: tuple[tuple[int, int], ...] = ()


class ArgumentResolver:
    """Resolves arguments against buffers' addresses. `address(buffer, frame)` differs between
    frames for the buffers in `framed`."""

    def __init__(
        self,
        gpu: Gpu,
        plan: MemoryPlan,
        address: Callable[[int, int], int],
        framed: frozenset[int],
    ) -> None:
        self._gpu = gpu
        self._plan = plan
        self._address = address
        self._framed = framed
        self._maps: dict[CudaTensorMap, Any] = {}

    def resolve(
        self,
        function: LoadedFunction,
        grid: tuple[int, int, int],
        arguments: Sequence[CudaArgument],
        programmatic: bool,
    ) -> ResolvedNode:
        """A node's slots, hidden parameters included."""
        values: list[int] = []
        maps: list[tuple[int, int]] = []
        framed: list[tuple[int, Operand]] = []
        for argument in arguments:
            if isinstance(argument, Operand):
                if argument.buffer in self._framed:
                    framed.append((len(values), argument))
                values.append(self._address(argument.buffer, 0) + argument.byte_offset)
            elif isinstance(argument, CudaInteger):
                values.append(argument.value & _MASK)
            elif isinstance(argument, float):
                values.append(struct.unpack("<I", struct.pack("<f", argument))[0])
            elif isinstance(argument, CudaRowCount):
                values.append(self._rows(argument.buffer, argument.row_nbytes))
            else:
                maps.append((len(values), int(self._map(argument).getPtr())))
                row_nbytes = argument.dtype.row_nbytes(argument.columns)
                rows = self._rows(argument.buffer, row_nbytes)
                values += (0, rows, argument.columns, argument.columns, 1)
        values += [0] * function.hidden
        frames = [values] * FRAMES
        for frame in range(1, FRAMES) if framed else ():
            frames[frame] = values.copy()
            for slot, operand in framed:
                address = self._address(operand.buffer, frame)
                frames[frame][slot] = address + operand.byte_offset
        return ResolvedNode(function, grid, tuple(frames), programmatic, tuple(maps))

    def _held(self, operand: Operand) -> int:
        """Bytes from an operand's first to its buffer's end."""
        return self._plan.buffers[operand.buffer].nbytes - operand.byte_offset

    def _rows(self, operand: Operand, row_nbytes: int) -> int:
        """Whole rows that it holds. Raises ContractError for more than an i32 counts, which a
        kernel would take for another number."""
        rows = self._held(operand) // row_nbytes
        if rows > INT32_MAX:
            raise ContractError(
                f"holds {rows} rows of {row_nbytes} bytes, more than kernels count",
                where=f"buffer {self._plan.buffers[operand.buffer].buffer.name}",
                remedy="Ask for less with --cache-memory, or for fewer requests with --max-active",
            )
        return rows

    def _map(self, wanted: CudaTensorMap) -> Any:
        """The driver's tensor map, kept for as long as nodes are made from it."""
        found = self._maps.get(wanted)
        if found is not None:
            return found
        driver, buffer = self._gpu.driver, wanted.buffer.buffer
        if buffer in self._framed:
            name = self._plan.buffers[buffer].buffer.name
            raise ContractError("is read through a tensor map", where=f"input buffer {name}")
        row_nbytes = wanted.dtype.row_nbytes(wanted.columns)
        rows, columns = wanted.box
        swizzle = f"CU_TENSOR_MAP_SWIZZLE_{f'{wanted.swizzle}B' if wanted.swizzle else 'NONE'}"
        element = f"CU_TENSOR_MAP_DATA_TYPE_{_ELEMENTS[wanted.dtype]}"
        wide, narrow = driver.cuuint64_t, driver.cuuint32_t
        found = self._gpu.call(
            "making a tensor map",
            driver.cuTensorMapEncodeTiled,
            getattr(driver.CUtensorMapDataType, element),
            2,
            self._address(buffer, 0) + wanted.buffer.byte_offset,
            [wide(wanted.columns), wide(self._held(wanted.buffer) // row_nbytes)],
            [wide(row_nbytes)],
            [narrow(columns), narrow(rows)],
            [narrow(1), narrow(1)],
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(driver.CUtensorMapSwizzle, swizzle),
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        self._maps[wanted] = found
        return found


class ParameterBlock:
    """Where a node's parameters lie while the driver copies them; used for one node after the
    other."""

    def __init__(self) -> None:
        self._values = (ctypes.c_uint64 * _SLOTS)()
        self._pointers = (ctypes.c_uint64 * _SLOTS)()
        first = ctypes.addressof(self._values)
        for slot in range(_SLOTS):
            self._pointers[slot] = first + _SLOT_NBYTES * slot
        self._first = first
        self._moved: tuple[tuple[int, int], ...] = ()
        self.address = ctypes.addressof(self._pointers)

    def fill(self, node: ResolvedNode, frame: int) -> None:
        """Puts a node's parameters in."""
        values = node.values[frame]
        self._values[: len(values)] = values  # type: ignore[assignment]
        for slot, _ in self._moved:
            self._pointers[slot] = self._first + _SLOT_NBYTES * slot
        for slot, address in node.maps:
            self._pointers[slot] = address
        self._moved = node.maps
