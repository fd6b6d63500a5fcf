"""Launches that are done together: projection, rotation, cache and attention of single tokens; and
a projection with the weighing of the rows that it is added to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ignition.kernels.cuda import rotated_decode, tiles
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
from ignition.kernels.cuda.lowerings.attention import (
    PAGE_TOKENS,
    DecodePlan,
    attention_constants,
    check_attention,
)
from ignition.kernels.cuda.lowerings.model import page_nbytes, pointer, power_of_two, slot_count

# Arguments of `rotate_and_attend` that the projection before it doesn't write.
_SETTLED: Final = frozenset({"rows", "positions", "slots", "page_table"})

Window = Sequence[NeighbouringLaunch]


def _rotated_decode(window: Window) -> tuple[CudaKernel, ...] | None:
    """A projection, the rotation that reads it and the attention of what was rotated: the first is
    a launch, the others are one. None where they don't belong together, where what is between them
    is read again, or where launches of their own are faster."""
    projection, rope, attention = window
    shared = ("rows", "positions", "slot", "page_table", "k_plane", "v_plane")
    between = rope.places["queries"]
    plan = DecodePlan.of(attention.launch)
    if (
        "lanes" in attention.launch.operands
        or not tiles.rotation_inside(attention.launch.integers)
        or not plan.keepable
        or attention.places["queries"] != between
        or between not in rope.unread
        or any(rope.places[name] != attention.places[name] for name in shared)
        or rope.places["qkv"] != projection.places["out"]
    ):
        return None
    check_attention(attention.launch)
    projected = projections.linear(projection.launch)
    return (*projected, _rotate_and_attend(rope, attention, plan))


def _rotate_and_attend(
    rope: NeighbouringLaunch, attention: NeighbouringLaunch, plan: DecodePlan
) -> CudaKernel:
    """The second and third launch of a window."""
    at = attention.launch.integers
    plane = f"tensordesc<fp16[{PAGE_TOKENS}, {at['head_dim']}]>"
    norms = {name: name in rope.launch.operands for name in ("q_norm", "k_norm")}
    request = KernelRequest(
        rotated_decode.rotate_and_attend,
        {"rows": "*i32", "qkv": "*fp32", "keys": plane, "values": plane}
        | dict.fromkeys(("positions", "slots", "page_table"), "*i32")
        | dict.fromkeys(("inverse_frequency", "q_norm", "k_norm"), "*fp32")
        | {"key_plane": "*fp16", "value_plane": "*fp16"}
        | {"out": pointer(attention.launch, "format"), "partials": "*fp32", "arrivals": "*i32"}
        | dict.fromkeys(("table_pages", "slot_count", "pages"), "i32")
        | dict.fromkeys(("epsilon", "attention_factor", "scale_log2"), "fp32"),
        attention_constants(attention.launch, plan.height)
        | {"HEIGHT": power_of_two(plan.group)}
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
        **{argument: At(operand, 1) for argument, operand in operands.items()},
        "keys": TensorMap("k_plane", at["head_dim"], 1),
        "values": TensorMap("v_plane", at["head_dim"], 1),
        "out": At("out", 2),
        "table_pages": at["table_pages"],
        "slot_count": slot_count(at["table_pages"], 1),
        "pages": RowsOf("k_plane", page_nbytes(attention.launch), 1),
        "epsilon": rope.launch.floats["epsilon"],
        "attention_factor": rope.launch.floats["attention_factor"],
        "scale_log2": attention.launch.floats["scale"] * math.log2(math.e),
        **plan.scratch(kept=True),
    }
    return CudaKernel(request, plan.grid, values, settled=_SETTLED)


FUSIONS: Final[tuple[Fusion, ...]] = (
    Fusion(("linear", "rope_and_cache_f16", "attention_f16"), _rotated_decode),
    Fusion(("linear_weighed", "rope_and_cache_f16", "attention_f16"), _rotated_decode),
    Fusion(("linear", "weigh"), projections.linear_weighing),
)
