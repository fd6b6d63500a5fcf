"""The launches of a layer and the ways of doing them that are timed, before anything is compiled.

Operands are named by what they hold, the same name for the same memory; `LAYERED` names differ
from layer to layer. Needs Triton, because lowerings do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from unittest.mock import patch

from gpu_parts.geometries import Geometry
from helios.kernels.catalogue import BY_NAME
from ignition.capture.ops import row_blocks
from ignition.kernels.cuda import tiles
from ignition.kernels.cuda.launches import (
    ARCHITECTURES,
    CatalogueLaunch,
    CudaKernel,
    NeighbouringLaunch,
)
from ignition.kernels.cuda.lowerings import FUSIONS, LOWERINGS

ROWS_BF16 = 10
PAGE_TOKENS = 64
CONTEXT_TOKENS = 192
LANES = 8
# Decode takes a row a lane up to here, prefill one prompt.
MOST_LANES = 128
# Between launches of a layer; nothing reads them later.
BETWEEN = ("normed", "qkv", "queries", "attended", "normed2", "gated")


@dataclass(frozen=True)
class Way:
    """Choices that differ from the default: tiles by role (None: no narrow kernel), parts of every
    matrix, fusions that aren't made; `inside`: rotation inside attention although rows are many;
    `tile`: of every matrix that has no narrow kernel; `norm`: warps of every norm; `unsettled`:
    nothing is known of the launch before."""

    name: str
    narrow: dict[str, tiles.NarrowTile | None] = field(default_factory=dict)
    parts: int | None = None
    without: tuple[str, ...] = ()
    inside: bool = False
    tile: tiles.Tile | None = None
    norm: int | None = None
    unsettled: bool = False


@dataclass(frozen=True)
class PlannedLaunch:
    """A catalogue launch and the memory of its operands."""

    launch: CatalogueLaunch
    places: dict[str, str]


def layer(geometry: Geometry, rows: int) -> list[PlannedLaunch]:
    """The launches of a layer, as the recipe records them."""
    g = geometry
    mixed = g.q_heads * g.head_dim
    qkv = mixed + 2 * g.kv_heads * g.head_dim
    context = CONTEXT_TOKENS if rows <= MOST_LANES else rows
    heads = {
        "capacity": rows, "q_heads": g.q_heads, "kv_heads": g.kv_heads, "head_dim": g.head_dim,
        "page_tokens": PAGE_TOKENS, "table_pages": max(32, -(-context // PAGE_TOKENS)),
    }  # fmt: skip
    block, blocks = row_blocks(rows, g.hidden)
    norm = {"capacity": rows, "width": g.hidden, "format": 1, "block": block, "blocks": blocks}
    product = {"capacity": rows, "packing": ROWS_BF16, "format": 1}
    cache = "rows positions slot page_table k_plane v_plane"
    norms = " q_norm k_norm" if g.name == "0.6B" else ""
    by_lanes = rows > MOST_LANES
    attention = heads | {"window": 0, "format": 1, "lane_capacity": LANES if by_lanes else 0}

    def planned(
        kernel: str, integers: dict[str, int], operands: str, floats: dict[str, float]
    ) -> PlannedLaunch:
        places = dict(item.split("=") if "=" in item else (item, item) for item in operands.split())
        described = CatalogueLaunch(
            kernel, integers, floats, frozenset(places), ARCHITECTURES["sm_90"]
        )
        return PlannedLaunch(described, places)

    def linear(width: int, outputs: int, operands: str) -> PlannedLaunch:
        integers = product | {"width": width, "outputs": outputs, "accumulate": 1}
        return planned("linear", integers, f"rows {operands}", {})

    epsilon = {"epsilon": 1e-5}
    return [
        planned("weigh", norm, "rows x weight=norm out=normed squares", {}),
        planned(
            "linear_weighed", product | {"width": g.hidden, "outputs": qkv, "blocks": blocks},
            "rows x=normed squares weight=w_qkv out=qkv", epsilon,
        ),
        planned(
            "rope_and_cache_f16", heads, f"{cache} qkv inverse_frequency queries{norms}",
            epsilon | {"attention_factor": 1.0},
        ),
        planned(
            "attention_f16", attention,
            f"{cache} queries out=attended{' lanes query_length' * by_lanes}",
            {"scale": g.head_dim**-0.5},
        ),
        linear(mixed, g.hidden, "x=attended weight=w_output out=x"),
        planned("weigh", norm, "rows x weight=norm2 out=normed2 squares=squares2", {}),
        planned(
            "linear_silu_mul_weighed",
            product
            | {"width": g.hidden, "outputs": g.inner, "out_format": 1, "blocks": blocks},
            "rows x=normed2 squares=squares2 weight=w_gate_up out=gated", epsilon,
        ),
        linear(g.inner, g.hidden, "x=gated weight=w_down out=x"),
    ]  # fmt: skip


def lowered(
    geometry: Geometry, rows: int, way: Way
) -> list[tuple[CudaKernel, list[PlannedLaunch]]]:
    """The CUDA launches of a layer, each with the catalogue launches that its arguments number."""
    launches = layer(geometry, rows)
    if not way.unsettled:
        launches = _settled(launches)
    result: list[tuple[CudaKernel, list[PlannedLaunch]]] = []
    with _chosen(geometry, way):
        at = 0
        while at < len(launches):
            window, kernels = _fused(launches[at:], way)
            if not window:
                window = launches[at : at + 1]
                kernels = LOWERINGS[window[0].launch.kernel](window[0].launch)
            result += [(kernel, window) for kernel in kernels]
            at += len(window)
    return result


def _settled(launches: list[PlannedLaunch]) -> list[PlannedLaunch]:
    """With the operands that the launch before doesn't write; of the first, the last of a layer."""
    found = []
    for before, planned in zip([launches[-1], *launches], launches, strict=False):
        written = {
            before.places[operand.name]
            for operand in BY_NAME[before.launch.kernel].operands
            if "w" in operand.access and operand.name in before.places
        }
        settled = frozenset(o for o, place in planned.places.items() if place not in written)
        found.append(replace(planned, launch=replace(planned.launch, settled=settled)))
    return found


def _fused(
    launches: list[PlannedLaunch], way: Way
) -> tuple[list[PlannedLaunch], Sequence[CudaKernel]]:
    numbers = {name: number for number, name in enumerate(_names(launches))}
    unread = frozenset((numbers[name], 0) for name in BETWEEN if name in numbers)
    for fusion in FUSIONS:
        window = launches[: len(fusion.kernels)]
        name = "+".join(fusion.kernels)
        if name in way.without or tuple(p.launch.kernel for p in window) != tuple(fusion.kernels):
            continue
        neighbours = [
            NeighbouringLaunch(
                p.launch, {o: (numbers[place], 0) for o, place in p.places.items()}, unread
            )
            for p in window
        ]
        kernels = fusion.lower(neighbours)
        if kernels is not None:
            return window, kernels
    return [], ()


def _names(launches: list[PlannedLaunch]) -> list[str]:
    return sorted({place for planned in launches for place in planned.places.values()})


@contextmanager
def _chosen(geometry: Geometry, way: Way) -> Iterator[None]:
    """With the tiles and parts of a way."""
    shapes = {shape[:2]: role for role, shape in geometry.projections.items()}
    narrow, parts = tiles.narrow, tiles.parts

    def chosen_narrow(rows: int, outputs: int, width: int) -> tiles.NarrowTile | None:
        role = shapes.get((outputs, width), "")
        return way.narrow[role] if role in way.narrow else narrow(rows, outputs, width)

    def chosen_parts(outputs: int, width: int) -> int:
        return parts(outputs, width) if way.parts is None else way.parts

    tile, norm = tiles.tile, tiles.norm_warps

    def chosen_norm(rows: int, padded: int) -> int:
        return way.norm or norm(rows, padded)

    def chosen_tile(rows: int, outputs: int, width: int, *, f32: bool) -> tiles.Tile:
        return way.tile or tile(rows, outputs, width, f32=f32)

    rotation_inside = (lambda *_: True) if way.inside else tiles.rotation_inside
    with (
        patch.object(tiles, "narrow", chosen_narrow),
        patch.object(tiles, "parts", chosen_parts),
        patch.object(tiles, "rotation_inside", rotation_inside),
        patch.object(tiles, "tile", chosen_tile),
        patch.object(tiles, "norm_warps", chosen_norm),
    ):
        yield


ROPE_FUSIONS = (
    "linear_weighed+rope_and_cache_f16+attention_f16",
    "linear_weighed+rope_and_cache_f16",
)


def ways(geometry: Geometry, rows: int) -> list[Way]:
    """Every way that is tried; the first is the default."""
    tried = [Way("as chosen")]
    if rows > MOST_LANES:
        return [*tried, Way("rotation apart", without=ROPE_FUSIONS), Way("one part", parts=1)]
    tried += [Way("rotation apart", without=ROPE_FUSIONS), Way("rotation inside", inside=True)]
    tried += [Way("norms of two warps", norm=2), Way("unsettled", unsettled=True)]
    tried.append(Way("weighing apart", without=("linear+weigh",)))
    roles = ("qkv", "output", "gate_up", "down")
    defaults = {role: tiles.narrow(rows, *geometry.projections[role][:2]) for role in roles}
    if not any(defaults.values()):
        return tried + _large_matrices(rows, roles)
    tried += [
        Way("no narrow kernels", narrow=dict.fromkeys(roles)),
        Way("one part", parts=1),
    ]
    if rows > 64:
        tried += [
            Way(f"many {height}x{wide}", narrow=dict.fromkeys(roles), tile=tile)
            for height, wide, tile in (
                (64, 64, tiles.Tile("project_many", True, 64, 64, 64, 4, 8)),
                (64, 128, tiles.Tile("project_many", True, 64, 128, 64, 4, 6)),
                (128, 64, tiles.Tile("project_many", True, 128, 64, 64, 8, 6)),
            )
        ]
    for change in ({"ask": 0}, {"early": False}):
        changed = {role: replace(t, **change) for role, t in defaults.items() if t is not None}
        tried.append(Way(f"all {change}", narrow=dict(changed)))
    for role, chosen in defaults.items():
        if chosen is None:
            continue
        others: list[dict[str, int]] = [{"outputs": n} for n in (16, 32, 64) if n != chosen.outputs]
        if rows < 8:
            others.append({"warps": 8})
        for change in others:
            tried.append(Way(f"{role} {change}", narrow={role: replace(chosen, **change)}))
    return tried


def _large_matrices(rows: int, roles: Sequence[str]) -> list[Way]:
    """Narrow kernels where the default is none."""
    if rows > 32:
        return []
    block = 8 if rows <= 8 else 32
    shapes = {
        "32x128": tiles.NarrowTile(block, 32, 128, 4, 7, ask=512),
        "64x128 late, unasked": tiles.NarrowTile(block, 64, 128, 4, 6, early=False),
    }
    return [
        Way(f"narrow {name} {role}", narrow={role: tile})
        for role in roles
        for name, tile in shapes.items()
    ]
