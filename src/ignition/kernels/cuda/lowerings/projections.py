"""Lowerings of the projections: which kernel, which tile, which epilogue."""

from __future__ import annotations

from helios.errors import ContractError
from helios.kernels.catalogue import ActivationFormat
from helios.schema import execution_pb2 as pb
from ignition.kernels.cuda import projection, tiles
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

_GROUP = 8  # row tiles that pass over the weights together; decides no bits


def linear(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """x Wᵀ + bias, into f32 or added to it."""
    epilogue = projection.ADD if launch.integers["accumulate"] else projection.F32
    return (_project(launch, launch.integers["outputs"], epilogue, "*fp32"),)


def linear_silu_mul(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """silu(gate) · up."""
    outputs = launch.integers["outputs"]
    if outputs % 8:
        raise ContractError(
            f"{outputs} outputs",
            where=launch.kernel,
            remedy="Gate and up alternate in groups of 8 rows",
        )
    out = pointer(launch, "out_format")
    return (_project(launch, 2 * outputs, projection.SILU_MUL, out),)


def _project(launch: CatalogueLaunch, outputs: int, epilogue: int, out: str) -> CudaKernel:
    at = launch.integers
    if not scaled.is_scaled(launch):
        check_packing(launch)
    if at["format"] != ActivationFormat.BF16:
        raise ContractError(
            f"reads format {at['format']}",
            where=launch.kernel,
            remedy="Projections of a GPU read bf16 activations",
        )
    if scaled.is_scaled(launch):
        return scaled.project(launch, outputs, epilogue, out)
    width = at["width"]
    chosen = tiles.tile(at["capacity"], outputs, width, f32=out == "*fp32")
    parts = tiles.parts(outputs, width)
    grid = chosen.grid(at["capacity"], outputs, parts, launch.architecture.processors)
    arguments = {"rows": "*i32", "x": "*bf16", "w": "*bf16", "bias": "*fp32", "out": out}
    constants: dict[str, int | bool] = {
        "N": outputs,
        "K": width,
        "SPLITS": parts,
        "BN": chosen.outputs,
        "BM": chosen.rows,
        "BK": chosen.width,
        "ROWS_FIRST": chosen.rows_first,
        "EPILOGUE": epilogue,
        "BIAS": "bias" in launch.operands,
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
        arguments["x"] = f"tensordesc<bf16[{chosen.rows}, {chosen.width}]>"
        arguments["w"] = f"tensordesc<bf16[{chosen.outputs}, {chosen.width}]>"
        constants |= {"GROUP": _GROUP, "FLATTEN": chosen.flatten}
        values["x"] = TensorMap("x", width)
        values["w"] = TensorMap("weight", width)
    function = getattr(projection, chosen.kernel)
    request = KernelRequest(function, arguments, constants, chosen.warps, chosen.stages)
    return CudaKernel(request, grid, values)
