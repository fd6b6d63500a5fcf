"""Lowerings of the launches that choose rows."""

from __future__ import annotations

from typing import Final

from ignition.kernels.cuda import selection as kernels
from ignition.kernels.cuda.launches import At, CatalogueLaunch, CudaKernel
from ignition.kernels.cuda.lowerings.building import (
    capacity,
    integers,
    row_words,
    small_kernel,
    words,
)

# Lanes whose lengths a program adds up together, and elements of a row that it copies.
_LANES: Final = 128
_COLUMNS: Final = 1024
_WARPS: Final = 4


def slice_rows(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """One number."""
    bounds = integers(start=launch.integers["start"], limit=launch.integers["limit"])
    arguments = {**words("rows", "out"), **capacity(launch), **bounds}
    return (small_kernel(kernels.slice_rows, (1,), arguments),)


def select_last(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """A program for each 4 KiB of a lane's row."""
    width = launch.integers["width"]
    arguments = {
        **words(
            "rows", "query_length", "sample", "x", "selected_rows", "selected_lane", "out",
        ),
        **capacity(launch),
        **integers(packed_capacity=launch.integers["packed_capacity"], width=width),
    }  # fmt: skip
    kernel = small_kernel(
        kernels.select_last,
        (-(-width // _COLUMNS), launch.integers["capacity"]),
        arguments,
        {"LANES": _LANES, "BLOCK": _COLUMNS},
        warps=_WARPS,
        multiples_of_16=_whole(width),
    )
    return (kernel,)


def select_attending(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """A program for each 4 KiB of a lane's row, and of its queries."""
    width = launch.integers["width"]
    kind, count, multiples = row_words(launch)
    arguments = {
        **words(
            "rows", "query_length", "sample", "x", "positions", "slot", "selected_rows",
            "selected_lane", "out", "out_positions", "out_slot",
        ),
        **{name: (kind, At(name)) for name in ("queries", "out_queries")},
        **capacity(launch),
        **integers(
            packed_capacity=launch.integers["packed_capacity"], width=width, words=count
        ),
    }  # fmt: skip
    kernel = small_kernel(
        kernels.select_attending,
        (-(-width // _COLUMNS) - (-count // _COLUMNS), launch.integers["capacity"]),
        arguments,
        {"LANES": _LANES, "BLOCK": _COLUMNS},
        warps=_WARPS,
        multiples_of_16=_whole(width) | multiples,
    )
    return (kernel,)


def _whole(width: int) -> frozenset[str]:
    return frozenset() if width % 16 else frozenset({"width"})
