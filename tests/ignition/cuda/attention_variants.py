"""Attention of decode as it is where the results of splits would take too much memory."""

from __future__ import annotations

from dataclasses import replace

from ignition.kernels.cuda.launches import CatalogueLaunch, CudaKernel
from ignition.kernels.cuda.lowerings.attention import attention_f16


def alone(launch: CatalogueLaunch) -> list[CudaKernel]:
    """`attend_decode` with one worker a row and a second accumulator."""
    (kernel,) = attention_f16(launch)
    request = replace(kernel.request, constants={**kernel.request.constants, "ALONE": True})
    return [replace(kernel, request=request, grid=(kernel.grid[0], 1, kernel.grid[2]))]
