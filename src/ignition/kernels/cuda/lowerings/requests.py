"""Lowerings of the launches on request state: scatters, admission, pending tokens, commit."""

from __future__ import annotations

from typing import Any, Final

from helios.kernels.catalogue import REQUEST_STATE_NBYTES
from ignition.kernels.cuda import requests as kernels
from ignition.kernels.cuda.launches import CatalogueLaunch, CudaKernel
from ignition.kernels.cuda.lowerings.building import (
    WORD_NBYTES,
    Typed,
    capacity,
    integers,
    rows_of,
    small_kernel,
    words,
)

Kernels = tuple[CudaKernel, ...]

# Lanes of a program: a warp's, since a launch of one lane is as common as one of many.
LANES: Final = 32
# Packed rows of a program.
_ROWS: Final = 256
# Entries for which another program is worth its launch.
_ENTRIES_A_PROGRAM: Final = 16_384
_MOST_PROGRAMS: Final = 32

STATE_WORDS: Final = REQUEST_STATE_NBYTES // WORD_NBYTES
_SLOTS: Final = {"slots": rows_of("state", STATE_WORDS)}


def scatter_i32(launch: CatalogueLaunch) -> Kernels:
    """A warp where few entries can come, as in page tables; several programs for histograms."""
    programs = min(-(-launch.integers["capacity"] // _ENTRIES_A_PROGRAM), _MOST_PROGRAMS)
    arguments = {
        **words("rows", "index", "value", "target"),
        **capacity(launch),
        "target_rows": rows_of("target", 1),
    }
    warps = 1 if programs == 1 else 2
    constants = {"BLOCK": 32 * warps}
    return (small_kernel(kernels.scatter, (programs,), arguments, constants, warps=warps),)


def initialize_requests(launch: CatalogueLaunch) -> Kernels:
    """A thread a lane."""
    operands = words(
        "rows", "slot", "generation", "consumed", "emitted", "output_limit", "seed",
        "temperature", "top_k", "top_p", "min_p", "eos_ids", "state",
    )  # fmt: skip
    return (_by_lanes(kernels.initialize, launch, operands),)


def load_pending(launch: CatalogueLaunch) -> Kernels:
    """A thread a lane."""
    operands = words("rows", "slot", "generation", "state", "tokens", "positions")
    return (_by_lanes(kernels.load_pending, launch, operands),)


def set_pending(launch: CatalogueLaunch) -> Kernels:
    """A thread a lane."""
    operands = words("rows", "slot", "generation", "token", "state")
    return (_by_lanes(kernels.set_pending, launch, operands),)


def merge_pending(launch: CatalogueLaunch) -> Kernels:
    """Two packed rows a thread."""
    arguments = {
        **words(
            "rows", "decode_lanes", "slot", "generation", "state", "tokens", "positions",
            "out_tokens", "out_positions",
        ),
        **capacity(launch),
        **integers(lanes=launch.integers["lanes"]),
        **_SLOTS,
    }  # fmt: skip
    programs = -(-launch.integers["capacity"] // _ROWS)
    constants = {"BLOCK": _ROWS}
    return (small_kernel(kernels.merge_pending, (programs,), arguments, constants, warps=4),)


def commit(launch: CatalogueLaunch) -> Kernels:
    """A thread a lane."""
    operands = words(
        "rows", "slot", "generation", "query_length", "sampled", "tokens", "logprobs", "state",
        "lanes", "out_tokens", "out_logprobs",
    )  # fmt: skip
    return (_by_lanes(kernels.commit, launch, operands, **commit_constants(launch)),)


def commit_constants(launch: CatalogueLaunch) -> dict[str, bool]:
    """Which optional operands there are."""
    return {
        "QUERY_LENGTH": "query_length" in launch.operands,
        "SAMPLED": "sampled" in launch.operands,
    }


def _by_lanes(
    function: Any, launch: CatalogueLaunch, operands: dict[str, Typed], **constants: bool
) -> CudaKernel:
    """Programs of a warp, over all lanes."""
    arguments = {**operands, **capacity(launch), **_SLOTS}
    programs = -(-launch.integers["capacity"] // LANES)
    return small_kernel(function, (programs,), arguments, {"BLOCK": LANES, **constants})
