"""Lowerings of the projections: which kernel, which tile, which epilogue."""

from __future__ import annotations

from dataclasses import dataclass

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
    Scratch,
    TensorMap,
)
from ignition.kernels.cuda.lowerings import scaled
from ignition.kernels.cuda.lowerings.model import check_packing, pointer


def linear(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """x Wᵀ + bias, into f32 or added to it."""
    return (_project(launch, linear_product(launch)),)


def linear_silu_mul(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """silu(gate) · up."""
    return (_project(launch, silu_product(launch)),)


@dataclass(frozen=True)
class Product:
    """A projection: its matrix, its epilogue, the type of what it writes."""

    outputs: int
    width: int
    epilogue: int
    out: str


def linear_product(launch: CatalogueLaunch) -> Product:
    """What a `linear` computes. Raises ContractError for what a GPU doesn't."""
    _check(launch)
    epilogue = projection.ADD if launch.integers["accumulate"] else projection.F32
    return Product(launch.integers["outputs"], launch.integers["width"], epilogue, "*fp32")


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
    return Product(2 * outputs, launch.integers["width"], projection.SILU_MUL, out)


def _check(launch: CatalogueLaunch) -> None:
    if not scaled.is_scaled(launch):
        check_packing(launch)
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
    if launch.architecture.name == "sm_90":  # whose instructions it names
        at = launch.integers["capacity"], product.outputs, product.width
        grouped = tiles.in_groups(*at, launch.architecture.processors)
        if grouped is not None:
            return project_in_groups(launch, product, grouped)
    return project_tiled(launch, product)


def project_narrow(
    launch: CatalogueLaunch, product: Product, chosen: tiles.NarrowTile
) -> CudaKernel:
    """`project_narrow` for a launch."""
    capacity = launch.integers["capacity"]
    request = KernelRequest(
        narrow.project_narrow,
        {"rows": "*i32", "x": "*bf16", "w": "*bf16", "bias": "*fp32", "out": product.out}
        | {"capacity": "i32"},
        {"N": product.outputs, "K": product.width}
        | {"PARTS": tiles.parts(product.outputs, product.width)}
        | {"BN": chosen.outputs, "BM": chosen.rows, "BK": chosen.width}
        | {"ROWS_FIRST": chosen.rows_first, "EPILOGUE": product.epilogue}
        | {"BIAS": "bias" in launch.operands, "ASK": chosen.ask, "EARLY": chosen.early},
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
    }
    return CudaKernel(request, chosen.grid(capacity, product.outputs), values)


def project_in_groups(launch: CatalogueLaunch, product: Product, chosen: tiles.Tile) -> CudaKernel:
    """`project_in_groups` for a launch."""
    bias = "bias" in launch.operands
    capacity, processors = launch.integers["capacity"], launch.architecture.processors
    request = KernelRequest(
        projection_warps.project_in_groups,
        {"rows": "*i32", **described(chosen), "bias": "*fp32", "out": product.out},
        {"N": product.outputs, "K": product.width}
        | {"BN": chosen.outputs, "BM": chosen.rows, "BK": chosen.width, "STAGES": chosen.stages}
        | {"GROUP": tiles.together(capacity), "EPILOGUE": product.epilogue, "BIAS": bias},
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
    }
    values: dict[str, Argument] = {name: At(name) for name in ("rows", "x", "out")}
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
    request = KernelRequest(function, arguments, constants, chosen.warps, chosen.stages)
    return CudaKernel(request, grid, values, settled=launch.settled & {"rows"})
