"""Kernels that make a round of rounds that compute nothing: for measuring the host's half."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ignition.kernels.cuda.compile import KernelRequest

BLOCK = 1024


@triton.jit
def step(numbers, BLOCK: tl.constexpr):
    """Adds one to each CTA's numbers, after every kernel before it: a chain counts its nodes."""
    gdc_launch_dependents()
    gdc_wait()
    at = numbers + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(at, tl.load(at) + 1)


@triton.jit
def echo(source, destination, count, BLOCK: tl.constexpr):
    """Copies `count` i32."""
    gdc_wait()
    gdc_launch_dependents()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(destination + at, tl.load(source + at, mask=at < count), mask=at < count)


@triton.jit
def spin(flag, BLOCK: tl.constexpr):
    """Never ends, as long as `flag` is 0 or more."""
    gdc_wait()
    value = tl.load(flag, volatile=True)
    while value >= 0:
        value = tl.load(flag, volatile=True)
    tl.store(flag, value)


def requests() -> dict[str, Any]:
    """By function."""
    constants = {"BLOCK": BLOCK}

    def request(function: Any, arguments: dict[str, str]) -> KernelRequest:
        return KernelRequest(function, arguments, constants, num_warps=4, num_stages=1)

    return {
        "step": request(step, {"numbers": "*i32"}),
        "echo": request(echo, {"source": "*i32", "destination": "*i32", "count": "i32"}),
        "spin": request(spin, {"flag": "*i32"}),
    }
