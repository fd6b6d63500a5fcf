"""Decoding of what cuda targets add to a manifest: functions of modules, and the nodes that launch
them.

Called by `manifest_decoder` and `program_decoder`. Limits are those of every GPU that a core can be
prepared for; a device refuses what its own doesn't have. Nodes repeat arguments, so equal ones
share an object, checked once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from helios.contract.enums import AccessMode
from helios.contract.fields import each, enum, integer, join, name, refuse
from helios.runtime.manifest import (
    Buffer,
    CudaArgument,
    CudaFunction,
    CudaInteger,
    CudaIntegerWidth,
    CudaNode,
    CudaRowCount,
    CudaTarget,
    CudaTensorMap,
    DType,
    LeadingCount,
    Operand,
)
from helios.runtime.operand_decoder import decode_operand

TARGET_PREFIX: Final = "cuda:"
THREADS_LIMIT: Final = 1024
SHARED_LIMIT_NBYTES: Final = 232_448
GRID_LIMITS: Final = ((1 << 31) - 1, 65_535, 65_535)
# Parameters of a function take 4 KiB at most, and a small one four bytes.
ARGUMENTS_LIMIT: Final = 1024
BOX_LIMIT: Final = 256
SWIZZLES: Final = (0, 32, 64, 128)
# What the copy engine takes: addresses and strides are multiples of it.
MAP_ALIGNMENT_NBYTES: Final = 16
_COLUMNS_LIMIT: Final = 1 << 32
_BLOCKED: Final = (DType.ACT_Q8, DType.ACT_Q16)


def decode_target(message: Any, target: str) -> CudaTarget | None:
    """`ExecutionManifest.cuda`, which is there on cuda targets and nowhere else."""
    cuda = target.startswith(TARGET_PREFIX)
    if message.HasField("cuda") != cuda:
        refuse("cuda", f"belongs to cuda targets and to all of them, and this is for {target!r}")
    if not cuda:
        return None
    functions = each(message.cuda.functions, "cuda.functions", _function)
    return CudaTarget(
        functions=functions,
        stage=integer(message.cuda.stage, "cuda.stage", high=len(functions) - 1),
        record=integer(message.cuda.record, "cuda.record", high=len(functions) - 1),
    )


def _function(message: Any, where: str) -> CudaFunction:
    return CudaFunction(
        module=name(message.module, join(where, "module")),
        function=name(message.function, join(where, "function")),
        threads=integer(message.threads, join(where, "threads"), low=1, high=THREADS_LIMIT),
        shared_nbytes=integer(
            message.shared_nbytes, join(where, "shared_nbytes"), high=SHARED_LIMIT_NBYTES
        ),
    )


class NodeDecoder:
    """Decodes the nodes of launches over the buffers and functions of one manifest."""

    def __init__(self, buffers: Sequence[Buffer], target: CudaTarget) -> None:
        self._buffers = buffers
        self._functions = len(target.functions)
        self._ends = (target.stage, target.record)
        # By their bytes, which is faster than by what they hold.
        self._arguments: dict[bytes, CudaArgument] = {}

    def decode(self, message: Any, launch: str, number: int) -> CudaNode:
        """Node `number` of the launch at the path `launch`."""
        if message.function >= self._functions:
            refuse(f"{launch}.nodes[{number}].function", f"no function {message.function}")
        if message.function in self._ends:
            # In the midst of a round it would complete it, or another frame's.
            refuse(f"{launch}.nodes[{number}].function", "begins and ends rounds, and does no work")
        grid = tuple(message.grid)
        if len(grid) != len(GRID_LIMITS):
            refuse(f"{launch}.nodes[{number}].grid", f"has {len(grid)} extents, not 3")
        for axis, (extent, limit) in enumerate(zip(grid, GRID_LIMITS, strict=True)):
            if not 1 <= extent <= limit:
                integer(extent, f"{launch}.nodes[{number}].grid[{axis}]", low=1, high=limit)
        if len(message.arguments) > ARGUMENTS_LIMIT:
            refuse(
                f"{launch}.nodes[{number}].arguments",
                f"are {len(message.arguments)}, more than the {ARGUMENTS_LIMIT} there can be",
            )
        arguments: list[CudaArgument] = []
        known = self._arguments
        for argument in message.arguments:
            wire = argument.SerializeToString()
            found = known.get(wire)
            if found is None:
                at = f"{launch}.nodes[{number}].arguments[{len(arguments)}]"
                found = known[wire] = self._argument(argument, at)
            arguments.append(found)
        return CudaNode(message.function, grid, tuple(arguments), message.programmatic)

    def _argument(self, message: Any, where: str) -> CudaArgument:
        kind = message.WhichOneof("value")
        if kind == "buffer":
            return self._operand(message.buffer, join(where, "buffer"))
        if kind == "int32":
            return CudaInteger(message.int32, CudaIntegerWidth.BITS_32)
        if kind == "int64":
            return CudaInteger(message.int64, CudaIntegerWidth.BITS_64)
        if kind == "float32":
            value: float = message.float32
            if not math.isfinite(value):
                refuse(join(where, "float32"), f"{value} is not finite")
            return value
        if kind == "tensor_map":
            return self._tensor_map(message.tensor_map, join(where, "tensor_map"))
        if kind is None:
            refuse(where, "has no value")
        return self._row_count(message.row_count, join(where, "row_count"))

    def _operand(self, message: Any, where: str) -> Operand:
        return decode_operand(message, self._buffers, lambda field: join(where, field))

    def _row_count(self, message: Any, where: str) -> CudaRowCount:
        operand = self._operand(message.buffer, join(where, "buffer"))
        high = self._buffers[operand.buffer].nbytes
        nbytes = integer(message.row_nbytes, join(where, "row_nbytes"), low=1, high=high)
        return CudaRowCount(operand, nbytes)

    def _tensor_map(self, message: Any, where: str) -> CudaTensorMap:
        """A matrix that lies in the buffer in whole rows, and a box that the copy engine takes."""
        operand = self._operand(message.buffer, join(where, "buffer"))
        if operand.access is not AccessMode.READ:
            refuse(join(where, "buffer.access"), f"is {operand.access.name}; maps are for reading")
        if operand.byte_offset % MAP_ALIGNMENT_NBYTES:
            refuse(
                join(where, "buffer.byte_offset"),
                f"{operand.byte_offset} is no multiple of {MAP_ALIGNMENT_NBYTES}",
            )
        dtype = enum(DType, message.dtype, join(where, "dtype"))
        if dtype in _BLOCKED:
            refuse(join(where, "dtype"), f"{dtype.name} is no element of a matrix")
        columns = integer(message.columns, join(where, "columns"), low=1, high=_COLUMNS_LIMIT)
        row_nbytes = dtype.row_nbytes(columns)
        buffer = self._buffers[operand.buffer]
        nbytes = buffer.nbytes - operand.byte_offset
        # With a symbolic leading count the whole is a multiple of a row of the buffer's.
        partial = buffer.leading is not LeadingCount.FIXED and operand.byte_offset
        if row_nbytes % MAP_ALIGNMENT_NBYTES or nbytes % row_nbytes or partial:
            refuse(
                join(where, "columns"),
                f"rows of {row_nbytes} bytes don't divide {buffer.name!r}, or aren't multiples of"
                f" {MAP_ALIGNMENT_NBYTES}",
            )
        if len(message.box) != 2:
            refuse(join(where, "box"), f"has {len(message.box)} extents, not 2")
        for axis, extent in enumerate(message.box):
            integer(extent, f"{where}.box[{axis}]", low=1, high=BOX_LIMIT)
        rows, width = message.box
        self._check_swizzle(message.swizzle, dtype.row_nbytes(width), where)
        return CudaTensorMap(operand, dtype, columns, (rows, width), message.swizzle)

    def _check_swizzle(self, swizzle: int, box_nbytes: int, where: str) -> None:
        if swizzle not in SWIZZLES:
            refuse(join(where, "swizzle"), f"is {swizzle}, not one of {SWIZZLES}")
        if box_nbytes % MAP_ALIGNMENT_NBYTES:
            refuse(
                f"{where}.box[1]",
                f"{box_nbytes} bytes are no multiple of {MAP_ALIGNMENT_NBYTES}",
            )
        if swizzle and box_nbytes > swizzle:
            refuse(
                f"{where}.box[1]", f"{box_nbytes} bytes are more than the {swizzle} of a swizzle"
            )
