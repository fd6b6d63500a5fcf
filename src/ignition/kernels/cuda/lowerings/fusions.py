"""Launches that are done together: rotation, cache and attention of single tokens.

Each returns None where the launches don't belong together, where what is between them is read
again, or where launches of their own are faster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ignition.kernels.cuda import decode, tiles
from ignition.kernels.cuda.compile import KernelRequest
from ignition.kernels.cuda.launches import (
    Argument,
    At,
    CudaKernel,
    Fusion,
    NeighbouringLaunch,
    RowsOf,
    TensorMap,
)
from ignition.kernels.cuda.lowerings import projections
from ignition.kernels.cuda.lowerings.model import (
    PAGE_TOKENS,
    DecodePlan,
    attention_constants,
    check_attention,
    page_nbytes,
    pointer,
    slot_count,
)

# Arguments of `rotate_and_attend` that a projection before it doesn't write.
_SETTLED: Final = frozenset({"rows", "positions", "slots", "page_table"})

Window = Sequence[NeighbouringLaunch]


def _rope_and_attention(window: Window) -> tuple[CudaKernel, ...] | None:
    """A rotation and the attention that reads it."""
    kernel = _rotate_and_attend(window, 0, settled=False)
    return None if kernel is None else (kernel,)


def _linear_to_attention(window: Window) -> tuple[CudaKernel, ...] | None:
    """The same after the projection of queries, keys and values."""
    kernel = _rotate_and_attend(window, 1, settled=True)
    if kernel is None:
        return None
    return (*projections.linear(window[0].launch), kernel)


def _rotate_and_attend(window: Window, first: int, *, settled: bool) -> CudaKernel | None:
    """`rotate_and_attend` for the rotation `window[first]` and the attention after it."""
    rope, attention = window[first], window[first + 1]
    shared = ("rows", "positions", "slot", "page_table", "k_plane", "v_plane")
    between = rope.places["queries"]
    if (
        "lanes" in attention.launch.operands
        or not tiles.rotation_inside(attention.launch.integers)
        or attention.places["queries"] != between
        or between not in rope.unread
        or any(rope.places[name] != attention.places[name] for name in shared)
        or (first and rope.places["qkv"] != window[first - 1].places["out"])
    ):
        return None
    check_attention(attention.launch)
    at = attention.launch.integers
    plan = DecodePlan.of(attention.launch)
    plane = f"tensordesc<fp16[{PAGE_TOKENS}, {at['head_dim']}]>"
    norms = {name: name in rope.launch.operands for name in ("q_norm", "k_norm")}
    request = KernelRequest(
        decode.rotate_and_attend,
        {"rows": "*i32", "qkv": "*fp32", "keys": plane, "values": plane}
        | dict.fromkeys(("positions", "slots", "page_table"), "*i32")
        | dict.fromkeys(("inverse_frequency", "q_norm", "k_norm"), "*fp32")
        | {"key_plane": "*fp16", "value_plane": "*fp16"}
        | {"out": pointer(attention.launch, "format"), "partials": "*fp32", "arrivals": "*i32"}
        | dict.fromkeys(("table_pages", "slot_count", "pages"), "i32")
        | dict.fromkeys(("epsilon", "attention_factor", "scale_log2"), "fp32"),
        attention_constants(attention.launch, plan.height)
        | {"ALONE": plan.workers == 1, "SETTLED": settled}
        | {name.upper(): given for name, given in norms.items()},
        num_warps=4,
        num_stages=2,
    )
    operands = {
        **{name: name for name in ("rows", "qkv", "positions", "page_table", "inverse_frequency")},
        **{name: name if given else "inverse_frequency" for name, given in norms.items()},
        "slots": "slot",
        "key_plane": "k_plane",
        "value_plane": "v_plane",
    }
    values: dict[str, Argument] = {
        **{argument: At(operand, first) for argument, operand in operands.items()},
        "keys": TensorMap("k_plane", at["head_dim"], first),
        "values": TensorMap("v_plane", at["head_dim"], first),
        "out": At("out", first + 1),
        "table_pages": at["table_pages"],
        "slot_count": slot_count(at["table_pages"], first),
        "pages": RowsOf("k_plane", page_nbytes(attention.launch), first),
        "epsilon": rope.launch.floats["epsilon"],
        "attention_factor": rope.launch.floats["attention_factor"],
        "scale_log2": attention.launch.floats["scale"] * math.log2(math.e),
        **plan.scratch,
    }
    return CudaKernel(request, plan.grid, values, settled=_SETTLED if settled else frozenset())


_TO_ATTENTION: Final = ("linear", "rope_and_cache_f16", "attention_f16")

FUSIONS: Final[tuple[Fusion, ...]] = (
    Fusion(_TO_ATTENTION, _linear_to_attention),
    Fusion(_TO_ATTENTION[1:], _rope_and_attention),
)
