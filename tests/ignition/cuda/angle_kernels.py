"""A kernel of angles alone, as a lowering of `scatter_i32`: the bits of angles and of what is made
of them are integers there."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from ignition.kernels.cuda.compile import KernelRequest
from ignition.kernels.cuda.launches import At, CatalogueLaunch, CudaKernel
from ignition.kernels.cuda.rotary import cosine_and_sine

BLOCK = 1024


@triton.jit
def _angles(value, target, BLOCK: tl.constexpr):
    gdc_wait()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    angle = tl.load(value + at).to(tl.float32, bitcast=True)
    cosine, sine = cosine_and_sine(angle)
    tl.store(target + 2 * at, cosine.to(tl.int32, bitcast=True))
    tl.store(target + 2 * at + 1, sine.to(tl.int32, bitcast=True))


def angles(launch: CatalogueLaunch) -> list[CudaKernel]:
    request = KernelRequest(
        _angles, dict.fromkeys(("value", "target"), "*i32"), {"BLOCK": BLOCK}, 4, 1
    )
    grid = (launch.integers["capacity"] // BLOCK, 1, 1)
    return [CudaKernel(request, grid, {name: At(name) for name in request.arguments})]
