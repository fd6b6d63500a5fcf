"""Lowerings of the launches that move requests: values from the host, state, pages, rows."""

from __future__ import annotations

from typing import Final

from ignition.kernels.cuda import requests as kernels
from ignition.kernels.cuda.compile import KernelRequest
from ignition.kernels.cuda.launches import Argument, At, CatalogueLaunch, CudaKernel, RowsOf

_I32: Final = 4
# Entries for which another program is worth its launch.
_ENTRIES_A_PROGRAM: Final = 16_384
_MOST_PROGRAMS: Final = 32


def scatter_i32(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """One program where few entries can come, as in page tables; several for histograms."""
    capacity = launch.integers["capacity"]
    programs = min(-(-capacity // _ENTRIES_A_PROGRAM), _MOST_PROGRAMS)
    request = KernelRequest(
        kernels.scatter,
        dict.fromkeys(("rows", "index", "value", "target"), "*i32")
        | dict.fromkeys(("capacity", "target_rows"), "i32"),
        {"BLOCK": 64},
        num_warps=2,
        num_stages=1,
    )
    arguments: dict[str, Argument] = {
        name: At(name) for name in ("rows", "index", "value", "target")
    }
    arguments |= {"capacity": capacity, "target_rows": RowsOf("target", _I32)}
    return (CudaKernel(request, (programs, 1, 1), arguments),)
