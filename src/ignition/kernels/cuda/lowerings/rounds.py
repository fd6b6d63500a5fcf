"""Fusions of the launches that a round begins and ends with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from helios.kernels.catalogue import ActivationFormat
from ignition.kernels.cuda import rounds as kernels
from ignition.kernels.cuda.launches import At, CudaKernel, Fusion, NeighbouringLaunch, RowsOf
from ignition.kernels.cuda.lowerings.building import WORD_NBYTES, Typed, integers, small_kernel
from ignition.kernels.cuda.lowerings.model import TABLES, check_blocks, pointer, power_of_two
from ignition.kernels.cuda.lowerings.requests import LANES, STATE_WORDS, commit_constants
from ignition.kernels.cuda.lowerings.sampling_rows import slot_counts

Launches = Sequence[NeighbouringLaunch]
Kernels = tuple[CudaKernel, ...]

# A row is a program's, in registers.
_WIDEST: Final = 8192
_NARROWEST: Final = 128


def _begin(
    function: Any,
    launches: Launches,
    tokens: str,
    operands: dict[str, Typed],
) -> Kernels | None:
    """The kernel over `scatter_i32` first and `embed` and `rms_norm` or `weigh` last. `tokens` is
    the operand of the launch before `embed` that it reads."""
    scatter, before, embed, norm = launches[0], launches[-3], launches[-2], launches[-1]
    width = embed.launch.integers["width"]
    padded = max(power_of_two(width), _NARROWEST)
    capacity = embed.launch.integers["capacity"]
    fits = (
        embed.launch.integers["packing"] in TABLES
        and norm.launch.integers["format"] in (ActivationFormat.F32, ActivationFormat.BF16)
        and norm.launch.integers["width"] == width
        and norm.launch.integers["capacity"] == capacity
        and padded <= _WIDEST
        and norm.places["x"] == embed.places["out"]
        and norm.places["rows"] == embed.places["rows"]
        and _apart(scatter, launches[1:])
    )
    if before is not scatter:
        fits = (
            fits
            and before.launch.integers["capacity"] == capacity
            and before.places[tokens] == embed.places["tokens"]
            and before.places["rows"] == embed.places["rows"]
        )
    if not fits:
        return None
    number = len(launches)
    weighs = norm.launch.kernel == "weigh"
    if weighs:
        check_blocks(norm.launch)
    arguments: dict[str, Typed] = {
        "entries": ("*i32", At("rows")),
        **{name: ("*i32", At(name)) for name in ("index", "value", "target")},
        **integers(entry_capacity=scatter.launch.integers["capacity"]),
        "target_rows": ("i32", RowsOf("target", WORD_NBYTES)),
        **operands,
        "rows": ("*i32", At("rows", number - 2)),
        "table": (TABLES[embed.launch.integers["packing"]], At("table", number - 2)),
        "x": ("*fp32", At("out", number - 2)),
        "weight": ("*fp32", At("weight", number - 1)),
        "normed": (pointer(norm.launch, "format"), At("out", number - 1)),
        "squares": ("*fp32", At("squares" if weighs else "out", number - 1)),
        **integers(vocab=embed.launch.integers["vocab"]),
        "scale": ("fp32", embed.launch.floats["scale"]),
        "epsilon": ("fp32", norm.launch.floats.get("epsilon", 0.0)),
    }
    blocks = {name.upper(): norm.launch.integers.get(name, 0) for name in ("block", "blocks")}
    constants = {"WIDTH": width, "PADDED": padded, **blocks}
    warps = 4 if padded <= 4096 else 8
    return (small_kernel(function, (1 + capacity,), arguments, constants, warps=warps),)


def _apart(scatter: NeighbouringLaunch, others: Launches) -> bool:
    """Whether the others neither see nor change what the scatter does."""
    theirs = {place for launch in others for place in launch.places.values()}
    return not theirs & set(scatter.places.values())


def _words(launch: int, *operands: str) -> dict[str, Typed]:
    return {operand: ("*i32", At(operand, launch)) for operand in operands}


_SLOTS: Final[dict[str, Typed]] = {"slots": ("i32", RowsOf("state", WORD_NBYTES * STATE_WORDS, 1))}


def begin_prefill(launches: Launches) -> Kernels | None:
    """A program for the page table and one a row."""
    return _begin(kernels.begin_prefill, launches, "", _words(1, "tokens"))


def begin_decode(launches: Launches) -> Kernels | None:
    """A program for the page table and one a lane."""
    operands = _words(1, "slot", "generation", "state", "tokens", "positions")
    return _begin(kernels.begin_decode, launches, "tokens", {**operands, **_SLOTS})


def begin_mixed(launches: Launches) -> Kernels | None:
    """A program for the page table and one a row."""
    operands: dict[str, Typed] = {
        **_words(1, "decode_lanes", "slot", "generation", "state"),
        "given_tokens": ("*i32", At("tokens", 1)),
        "given_positions": ("*i32", At("positions", 1)),
        "tokens": ("*i32", At("out_tokens", 1)),
        "positions": ("*i32", At("out_positions", 1)),
        **integers(lanes=launches[1].launch.integers["lanes"]),
        **_SLOTS,
    }
    return _begin(kernels.begin_mixed, launches, "out_tokens", operands)


def end_round(launches: Launches) -> Kernels | None:
    """A warp's lanes a program."""
    count, commit = launches
    shared = {"rows", "slot", "generation", "tokens", "state"}
    if "sampled" in count.launch.operands | commit.launch.operands:
        shared.add("sampled")
    capacity = commit.launch.integers["capacity"]
    alike = all(count.places.get(name) == commit.places.get(name) for name in shared)
    if not alike or count.launch.integers["capacity"] != capacity:
        return None
    arguments: dict[str, Typed] = {
        **_words(0, "sampling", "token_counts", "output_counts"),
        **_words(
            1, "rows", "slot", "generation", "query_length", "sampled", "tokens", "logprobs",
            "state", "lanes", "out_tokens", "out_logprobs",
        ),
        **slot_counts(count.launch),
    }  # fmt: skip
    constants = {"BLOCK": LANES, **commit_constants(commit.launch)}
    return (small_kernel(kernels.end_round, (-(-capacity // LANES),), arguments, constants),)


_NORMS: Final = ("rms_norm", "weigh")
FUSIONS: Final = (
    *(Fusion(("scatter_i32", "load_pending", "embed", norm), begin_decode) for norm in _NORMS),
    *(Fusion(("scatter_i32", "merge_pending", "embed", norm), begin_mixed) for norm in _NORMS),
    *(Fusion(("scatter_i32", "embed", norm), begin_prefill) for norm in _NORMS),
    Fusion(("count_sampled", "commit"), end_round),
)
