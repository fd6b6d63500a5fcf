"""Launches that are done together: the projection of many rows to queries, keys and values, their
rotation, and the cache's writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ignition.kernels.cuda import rotated_projection, tiles
from ignition.kernels.cuda.compile import KernelRequest
from ignition.kernels.cuda.launches import (
    Argument,
    At,
    CatalogueLaunch,
    CudaKernel,
    Fusion,
    NeighbouringLaunch,
    RowsOf,
    TensorMap,
)
from ignition.kernels.cuda.lowerings import projections, scaled
from ignition.kernels.cuda.lowerings.model import check_heads, page_nbytes, slot_count

Window = Sequence[NeighbouringLaunch]


def _rotated_projection(window: Window) -> tuple[CudaKernel, ...] | None:
    """One launch; None where what is between the two is read again, or where they had better stay
    apart."""
    projection, rope = window
    between = projection.places["out"]
    if (
        rope.places["qkv"] != between
        or between not in projection.unread
        or rope.places["rows"] != projection.places["rows"]
        or scaled.is_scaled(projection.launch)
        or projection.launch.integers.get("accumulate")
    ):
        return None
    check_heads(rope.launch)
    product = projections.linear_product(projection.launch)
    at = rope.launch.integers
    processors = rope.launch.architecture.processors
    chosen = tiles.rotated(
        at["capacity"], product.outputs, product.width, at["head_dim"], processors
    )
    if chosen is None or not _NORMS.isdisjoint(rope.launch.operands):
        return None
    return (project_and_rotate(projection.launch, rope.launch, chosen),)


# Of heads; with them the two are apart, which nobody has measured otherwise.
_NORMS: Final = frozenset({"q_norm", "k_norm"})


# Operands of the rotation by the kernel's arguments, in its order, with their types.
_OPERANDS: Final = {
    "positions": ("positions", "*i32"), "slots": ("slot", "*i32"),
    "page_table": ("page_table", "*i32"), "inverse_frequency": ("inverse_frequency", "*fp32"),
    "q_norm": ("q_norm", "*fp32"), "k_norm": ("k_norm", "*fp32"),
    "queries": ("queries", "*fp16"), "keys": ("k_plane", "*fp16"), "values": ("v_plane", "*fp16"),
}  # fmt: skip


def project_and_rotate(
    projection: CatalogueLaunch, rope: CatalogueLaunch, chosen: tiles.Tile
) -> CudaKernel:
    """`project_and_rotate` for a projection and the rotation that reads it."""
    at, width = rope.integers, projection.integers["width"]
    bias = "bias" in projection.operands
    norms = {name: name in rope.operands for name in sorted(_NORMS)}
    product = projections.linear_product(projection)
    request = KernelRequest(
        rotated_projection.project_and_rotate,
        {"rows": "*i32", **projections.described(chosen)}
        | dict.fromkeys(("bias", "squares"), "*fp32")
        | {name: kind for name, (_, kind) in _OPERANDS.items()}
        | dict.fromkeys(("table_pages", "slot_count", "pages"), "i32")
        | dict.fromkeys(("weighed_epsilon", "epsilon", "attention_factor"), "fp32"),
        {"K": width, "BN": chosen.outputs, "BM": chosen.rows, "BK": chosen.width}
        | {"GROUP": tiles.together(at["capacity"]), "FLATTEN": chosen.flatten, "BIAS": bias}
        | projections.blocks_constants(product)
        | {"SETTLED": "rows" in projection.settled}
        | {"Q_HEADS": at["q_heads"], "KV_HEADS": at["kv_heads"], "D": at["head_dim"]}
        | {"PAGE": at["page_tokens"]}
        | {name.upper(): given for name, given in norms.items()},
        chosen.warps,
        chosen.stages,
    )
    values: dict[str, Argument] = {
        "rows": At("rows"),
        "x": TensorMap("x", width),
        "w": TensorMap("weight", width),
        # What there isn't nothing looks at.
        "bias": At("bias" if bias else "rows"),
        "squares": At("squares" if product.blocks else "rows"),
        **{name: At(operand, 1) for name, (operand, _) in _OPERANDS.items()},
        "table_pages": at["table_pages"],
        "slot_count": slot_count(at["table_pages"], 1),
        "pages": RowsOf("k_plane", page_nbytes(rope), 1),
        "weighed_epsilon": projection.floats["epsilon"] if product.blocks else 0.0,
        **{name: rope.floats[name] for name in ("epsilon", "attention_factor")},
    }
    outputs, processors = projection.integers["outputs"], projection.architecture.processors
    grid = chosen.grid(at["capacity"], outputs, 1, processors)
    return CudaKernel(request, grid, values, settled=projection.settled & {"rows"})


FUSIONS: Final[tuple[Fusion, ...]] = (
    Fusion(("linear", "rope_and_cache_f16"), _rotated_projection),
    Fusion(("linear_weighed", "rope_and_cache_f16"), _rotated_projection),
)
