"""Lowerings of the projections: which kernel, which tile, which epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from helios.errors import ContractError
from helios.kernels.catalogue import ROW_GROUP, ActivationFormat
from helios.schema import execution_pb2 as pb
from ignition.kernels.cuda import narrow, projection, projection_warps, tiles
from ignition.kernels.cuda.compile import KernelRequest
from ignition.kernels.cuda.launches import (
    Argument,
    At,
    CatalogueLaunch,
    Counters,
    CudaKernel,
    NeighbouringLaunch,
    Scratch,
    TensorMap,
)
from ignition.kernels.cuda.lowerings import scaled
from ignition.kernels.cuda.lowerings.model import (
    check_blocks,
    check_packing,
    pointer,
    power_of_two,
)

# Elements of a tile that keeps its sums in registers until the rows are weighed.
_LARGEST_WEIGHED: Final = 8192


def linear(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """x Wᵀ + bias, into f32 or added to it."""
    return (_project(launch, linear_product(launch)),)


def linear_silu_mul(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """silu(gate) · up."""
    return (_project(launch, silu_product(launch)),)


def linear_weighing(window: Sequence[NeighbouringLaunch]) -> tuple[CudaKernel, ...] | None:
    """A projection that is added to rows, and these rows weighed. None where a tile doesn't hold
    whole blocks of them, and where rows are many: their squares are one sum."""
    added, weighed = (neighbour.launch for neighbour in window)
    product = linear_product(added)
    check_blocks(weighed)
    block = weighed.integers["block"]
    if (
        product.epilogue != projection.ADD
        or scaled.is_scaled(added)
        or window[0].places["out"] != window[1].places["x"]
        or window[0].places["rows"] != window[1].places["rows"]
        or any(added.integers[name] != weighed.integers[of] for name, of in _SAME.items())
        or weighed.integers["format"] != ActivationFormat.BF16
        or weighed.integers["blocks"] == 1
        or product.outputs % block
        or not _holds_blocks(added, product, block)
    ):
        return None
    return (_project(added, replace(product, epilogue=projection.ADD_WEIGHED, block=block)),)


# Attributes of a projection, and those that they are in the rows' weighing.
_SAME: Final = {"capacity": "capacity", "outputs": "width"}


@dataclass(frozen=True)
class Product:
    """A projection: its matrix, its epilogue, the type of what it writes; the sums of squares that
    a row of its input has, and the columns of those that it writes."""

    outputs: int
    width: int
    epilogue: int
    out: str
    blocks: int = 0
    block: int = 0


def linear_product(launch: CatalogueLaunch) -> Product:
    """What a `linear` computes. Raises ContractError for what a GPU doesn't."""
    _check(launch)
    epilogue = projection.ADD if launch.integers.get("accumulate") else projection.F32
    outputs, width = launch.integers["outputs"], launch.integers["width"]
    return Product(outputs, width, epilogue, "*fp32", _blocks(launch))


def _blocks(launch: CatalogueLaunch) -> int:
    """How many sums of squares a row of the input has, if it was weighed."""
    return launch.integers["blocks"] if "squares" in launch.operands else 0


def silu_product(launch: CatalogueLaunch) -> Product:
    """What a `linear_silu_mul` computes. Raises ContractError for what a GPU doesn't."""
    _check(launch)
    outputs = launch.integers["outputs"]
    if outputs % ROW_GROUP:
        raise ContractError(
            f"{outputs} outputs",
            where=launch.kernel,
            remedy=f"Gate and up alternate in groups of {ROW_GROUP} rows",
        )
    out = pointer(launch, "out_format")
    width = launch.integers["width"]
    return Product(2 * outputs, width, projection.SILU_MUL, out, _blocks(launch))


def _check(launch: CatalogueLaunch) -> None:
    if not scaled.is_scaled(launch):
        check_packing(launch)
    elif "squares" in launch.operands:
        raise ContractError(
            f"the packing is {launch.integers['packing']}",
            where=launch.kernel,
            remedy=f"Rows are weighed for ROWS_BF16 ({pb.PACKING_ROWS_BF16}) alone",
        )
    if launch.integers["format"] != ActivationFormat.BF16:
        raise ContractError(
            f"reads format {launch.integers['format']}",
            where=launch.kernel,
            remedy="Projections of a GPU read bf16 activations",
        )


def _project(launch: CatalogueLaunch, product: Product) -> CudaKernel:
    if scaled.is_scaled(launch):
        return scaled.project(launch, product.outputs, product.epilogue, product.out)
    chosen = tiles.narrow(launch.integers["capacity"], product.outputs, product.width)
    if chosen is not None:
        return project_narrow(launch, product, chosen)
    grouped = _grouped(launch, product)
    if grouped is not None:
        return project_in_groups(launch, product, grouped)
    return project_tiled(launch, product)


def _grouped(launch: CatalogueLaunch, product: Product) -> tiles.Tile | None:
    """The variant of `project_in_groups`, None where it isn't taken."""
    # Its instructions are sm_90's, it reads one sum of squares a row and weighs none.
    if launch.architecture.name != "sm_90" or product.blocks > 1 or product.block:
        return None
    at = launch.integers["capacity"], product.outputs, product.width
    return tiles.in_groups(*at, launch.architecture.processors)


def _holds_blocks(launch: CatalogueLaunch, product: Product, block: int) -> bool:
    """Whether a tile of the launch has whole blocks, few enough to be kept in registers."""
    capacity, outputs, width = launch.integers["capacity"], product.outputs, product.width
    chosen = tiles.narrow(capacity, outputs, width) or tiles.tile(
        capacity, outputs, width, f32=True
    )
    small = chosen.rows * chosen.outputs <= _LARGEST_WEIGHED
    return small and chosen.outputs % block == 0 and _grouped(launch, product) is None


def _weighing(launch: CatalogueLaunch, product: Product) -> dict[str, Argument]:
    """Arguments of what is weighed, before or after the product; others nothing looks at."""
    if product.block:
        weighed = {"factor": At("weight", 1), "weighed": At("out", 1), "squares": At("squares", 1)}
        return {**weighed, "epsilon": 0.0}
    nowhere = {"factor": At("out"), "weighed": At("out")}
    if product.blocks:
        return {**nowhere, "squares": At("squares"), "epsilon": launch.floats["epsilon"]}
    return {**nowhere, "squares": At("out"), "epsilon": 0.0}


_WEIGHING: Final = {"factor": "*fp32", "weighed": "*bf16", "squares": "*fp32"}


def _weighing_constants(product: Product) -> dict[str, int]:
    return {**blocks_constants(product), "BLOCK": product.block or 1}


def blocks_constants(product: Product) -> dict[str, int]:
    """Constants of a kernel that reads weighed rows."""
    padded = power_of_two(product.blocks) if product.blocks else 1
    return {"BLOCKS": product.blocks, "PADDED_BLOCKS": padded}


def project_narrow(
    launch: CatalogueLaunch, product: Product, chosen: tiles.NarrowTile
) -> CudaKernel:
    """`project_narrow` for a launch."""
    capacity = launch.integers["capacity"]
    request = KernelRequest(
        narrow.project_narrow,
        {"rows": "*i32", "x": "*bf16", "w": "*bf16", "bias": "*fp32", "out": product.out}
        | _WEIGHING
        | {"capacity": "i32", "epsilon": "fp32"},
        {"N": product.outputs, "K": product.width}
        | {"PARTS": tiles.parts(product.outputs, product.width)}
        | {"BN": chosen.outputs, "BM": chosen.rows, "BK": chosen.width}
        | {"ROWS_FIRST": chosen.rows_first, "EPILOGUE": product.epilogue}
        | {"BIAS": "bias" in launch.operands, "ASK": chosen.ask, "EARLY": chosen.early}
        | _weighing_constants(product),
        chosen.warps,
        chosen.stages,
    )
    values: dict[str, Argument] = {
        "rows": At("rows"),
        "x": At("x"),
        "w": At("weight"),
        "bias": At("bias" if "bias" in launch.operands else "weight"),  # without one unread
        "out": At("out"),
        "capacity": capacity,
        **_weighing(launch, product),
    }
    return CudaKernel(request, chosen.grid(capacity, product.outputs), values)


def project_in_groups(launch: CatalogueLaunch, product: Product, chosen: tiles.Tile) -> CudaKernel:
    """`project_in_groups` for a launch."""
    bias = "bias" in launch.operands
    capacity, processors = launch.integers["capacity"], launch.architecture.processors
    request = KernelRequest(
        projection_warps.project_in_groups,
        {"rows": "*i32", **described(chosen), "bias": "*fp32", "out": product.out}
        | {"squares": "*fp32", "epsilon": "fp32"},
        {"N": product.outputs, "K": product.width}
        | {"BN": chosen.outputs, "BM": chosen.rows, "BK": chosen.width, "STAGES": chosen.stages}
        | {"GROUP": tiles.together(capacity), "EPILOGUE": product.epilogue, "BIAS": bias}
        | {"WEIGHED": product.blocks == 1},
        chosen.warps,
        1,
    )
    values: dict[str, Argument] = {
        "rows": At("rows"),
        "x": TensorMap("x", product.width),
        "w": TensorMap("weight", product.width),
        "bias": At("bias" if bias else "out"),  # without one nothing looks there
        "out": At("out"),
    }
    values |= {name: _weighing(launch, product)[name] for name in ("squares", "epsilon")}
    return CudaKernel(request, chosen.grid(capacity, product.outputs, 1, processors), values)


def described(chosen: tiles.Tile) -> dict[str, str]:
    """Types of the operands that come through tensor maps."""
    return {
        "x": f"tensordesc<bf16[{chosen.rows}, {chosen.width}]>",
        "w": f"tensordesc<bf16[{chosen.outputs}, {chosen.width}]>",
    }


def project_tiled(launch: CatalogueLaunch, product: Product) -> CudaKernel:
    """`project_few` or `project_many` for a launch."""
    at = launch.integers
    outputs, width = product.outputs, product.width
    chosen = tiles.tile(at["capacity"], outputs, width, f32=product.out == "*fp32")
    parts = tiles.parts(outputs, width)
    grid = chosen.grid(at["capacity"], outputs, parts, launch.architecture.processors)
    arguments = {"rows": "*i32", "x": "*bf16", "w": "*bf16", "bias": "*fp32", "out": product.out}
    arguments |= _WEIGHING
    constants: dict[str, int | bool] = {
        "N": outputs,
        "K": width,
        "SPLITS": parts,
        "BN": chosen.outputs,
        "BM": chosen.rows,
        "BK": chosen.width,
        "ROWS_FIRST": chosen.rows_first,
        "EPILOGUE": product.epilogue,
        "BIAS": "bias" in launch.operands,
        "SETTLED": "rows" in launch.settled,
        **_weighing_constants(product),
    }
    values: dict[str, Argument] = {name: At(name) for name in ("rows", "x", "out")}
    values |= _weighing(launch, product)
    values["bias"] = At("bias" if constants["BIAS"] else "out")  # without one nothing looks there
    if chosen.kernel == "project_few":
        tile_count = grid[0] * grid[2] if parts > 1 else 0
        elements = max(1, parts * tile_count * chosen.rows * chosen.outputs)
        arguments |= {"partials": "*fp32", "arrivals": "*i32"}
        values["w"] = At("weight")
        values["partials"] = Scratch("partials", pb.DTYPE_F32, (elements,))
        values["arrivals"] = Counters(max(1, tile_count))
    else:
        arguments |= described(chosen)
        constants |= {"GROUP": tiles.together(at["capacity"]), "FLATTEN": chosen.flatten}
        values["x"] = TensorMap("x", width)
        values["w"] = TensorMap("weight", width)
    function = getattr(projection, chosen.kernel)
    arguments["epsilon"] = "fp32"
    request = KernelRequest(function, arguments, constants, chosen.warps, chosen.stages)
    return CudaKernel(request, grid, values, settled=launch.settled & {"rows"})
