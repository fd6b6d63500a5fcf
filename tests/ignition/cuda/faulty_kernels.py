"""Kernels that break a rule each, as lowerings of `scatter_i32`, and some that show what holds."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from helios.schema import execution_pb2 as pb
from ignition.kernels.cuda.compile import KernelRequest
from ignition.kernels.cuda.launches import (
    At,
    CatalogueLaunch,
    Counters,
    CudaKernel,
    RowsOf,
    Scratch,
    TensorMap,
)


@triton.jit
def _copy(source, target, offset, reach, wait: tl.constexpr):
    if wait:
        gdc_wait()
    tl.store(target + offset, tl.load(source + reach))


@triton.jit
def _early(rows, target):
    live = tl.load(rows)
    gdc_wait()
    tl.store(target, live)


@triton.jit
def _number(target):
    gdc_wait()
    tl.store(target, tl.program_id(0))


@triton.jit
def _odd(target):
    gdc_wait()
    tl.store((target + 1).to(tl.pointer_type(tl.int32)), 1)


@triton.jit
def _round(target):
    gdc_wait()
    i = tl.arange(0, 4)
    values = 1.0 + tl.where(i == 0, 1, tl.where(i == 1, 3, 255)) * 0.00390625
    bits = values.to(tl.bfloat16).to(tl.uint16, bitcast=True)
    tl.store(target + i, bits.to(tl.int32), mask=i < 3)


def _kernel(function: Any, *, grid: int = 1, multiple: str = "", **arguments: Any) -> CudaKernel:
    constants = {"wait": arguments.pop("wait")} if "wait" in arguments else {}
    kinds = {name: "i32" if isinstance(value, int) else "*i32" for name, value in arguments.items()}
    if function is _odd:
        kinds["target"] = "*i8"
    request = KernelRequest(function, kinds, constants, 1, 1, frozenset(filter(None, [multiple])))
    return CudaKernel(request, (grid, 1, 1), arguments)


def _copying(source: Any, target: Any, offset: int, reach: int, **rest: Any) -> list[CudaKernel]:
    given = {"source": source, "target": target, "offset": offset, "reach": reach}
    return [_kernel(_copy, **{**given, "wait": True, **rest})]


def reads_outside(launch: CatalogueLaunch) -> list[CudaKernel]:
    return _copying(At("target"), At("target"), 0, 9)


def writes_outside(launch: CatalogueLaunch) -> list[CudaKernel]:
    return _copying(At("rows"), At("target"), -1, 0)


def writes_what_is_read(launch: CatalogueLaunch) -> list[CudaKernel]:
    return _copying(At("rows"), At("index"), 0, 0)


def reads_early(launch: CatalogueLaunch) -> list[CudaKernel]:
    return [_kernel(_early, rows=At("rows"), target=At("target"))]


def _settled(after: CudaKernel | None, source: str) -> list[CudaKernel]:
    """`_early` of an argument that it calls settled, after another kernel."""
    kernel = replace(
        _kernel(_early, rows=At(source), target=At("target")), settled=frozenset({"rows"})
    )
    return [kernel] if after is None else [after, kernel]


def settled(launch: CatalogueLaunch) -> list[CudaKernel]:
    """As it may be."""
    return _settled(_copying(At("value"), At("target"), 1, 0)[0], "rows")


def settled_alone(launch: CatalogueLaunch) -> list[CudaKernel]:
    return _settled(None, "rows")


def settled_and_written(launch: CatalogueLaunch) -> list[CudaKernel]:
    return _settled(_copying(At("rows"), At("target"), 0, 0)[0], "target")


def settled_too_soon(launch: CatalogueLaunch) -> list[CudaKernel]:
    return _settled(_kernel(_hasty, target=At("target")), "rows")


@triton.jit
def _hasty(target):
    gdc_launch_dependents()
    gdc_wait()
    tl.store(target, 1)


def never_waits(launch: CatalogueLaunch) -> list[CudaKernel]:
    idle = CudaKernel(
        KernelRequest(_idle, {"target": "*i32"}, {}, 1, 1), (1, 1, 1), {"target": At("target")}
    )
    return [idle]


@triton.jit
def _idle(target):
    if tl.program_id(0) > 0:
        gdc_wait()


def leaves_counters(launch: CatalogueLaunch) -> list[CudaKernel]:
    return _copying(At("rows"), Counters(2), 1, 0)


def misaligned(launch: CatalogueLaunch) -> list[CudaKernel]:
    return [_kernel(_odd, target=At("target"))]


def wrong_promise(launch: CatalogueLaunch) -> list[CudaKernel]:
    return _copying(At("rows"), At("target"), 0, 3, multiple="reach")


def scratch(launch: CatalogueLaunch) -> list[CudaKernel]:
    own = Scratch("own", pb.DTYPE_U8, (8,))
    first = _copying(own, At("target"), 0, 0)
    first[0] = CudaKernel(
        KernelRequest(_byte, {"source": "*u8", "counters": "*i32", "target": "*i32"}, {}, 1, 1),
        (1, 1, 1),
        {"source": own, "counters": Counters(3), "target": At("target")},
    )
    return first


@triton.jit
def _byte(source, counters, target):
    gdc_wait()
    tl.store(target, tl.load(source + 7).to(tl.int32))
    tl.store(target + 1, tl.load(counters + 2))


def last_program(launch: CatalogueLaunch) -> list[CudaKernel]:
    return [_kernel(_number, grid=4, target=At("target"))]


def ends(launch: CatalogueLaunch) -> list[CudaKernel]:
    """Not even a traceback."""
    os._exit(1)


def rounds(launch: CatalogueLaunch) -> list[CudaKernel]:
    return [_kernel(_round, target=At("target"))]


@triton.jit
def _map(source, count, target):
    gdc_wait()
    block = source.load([1, 0])
    tl.store(target + tl.arange(0, 8), tl.reshape(block, (8,)))
    tl.store(target + 8, count)


def tensor_map(launch: CatalogueLaunch) -> list[CudaKernel]:
    """The second and third row of `value` as a matrix of 4 columns, and how many it has."""
    kinds = {"source": "tensordesc<i32[2, 4]>", "count": "i32", "target": "*i32"}
    arguments = {
        "source": TensorMap("value", 4), "count": RowsOf("value", 16), "target": At("target"),
    }  # fmt: skip
    return [CudaKernel(KernelRequest(_map, kinds, {}, 1, 1), (1, 1, 1), arguments)]
