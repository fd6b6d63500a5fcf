"""Lowering of projections whose weights are 8-bit codes with scales."""

from __future__ import annotations

from typing import Final

from helios.errors import ContractError
from helios.kernels.catalogue import CODE_ROW_MULTIPLE
from helios.schema import execution_pb2 as pb
from ignition.kernels.cuda import scaled, scaled_tiles
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

PACKINGS: Final = frozenset({pb.PACKING_ROWS_Q8, pb.PACKING_ROWS_FP8})
_GROUP: Final = 8  # row tiles that pass over the weights together; decides no bits


def is_scaled(launch: CatalogueLaunch) -> bool:
    """Whether the launch's matrix is one of these."""
    return launch.integers["packing"] in PACKINGS


def project(launch: CatalogueLaunch, outputs: int, epilogue: int, out: str) -> CudaKernel:
    """`project_scaled` over a matrix of `outputs`."""
    at = launch.integers
    width = at["width"]
    if width % CODE_ROW_MULTIPLE:
        raise ContractError(
            f"rows of {width} codes",
            where=launch.kernel,
            remedy=f"Their width is a multiple of {CODE_ROW_MULTIPLE}",
        )
    fp8 = at["packing"] == pb.PACKING_ROWS_FP8
    processors = launch.architecture.processors
    chosen = scaled_tiles.tile(at["capacity"], outputs, width, processors, fp8=fp8)
    parts = scaled_tiles.parts(outputs, width)
    tiles = chosen.count(at["capacity"], outputs)
    apart = tiles if chosen.apart else 0
    bias = "bias" in launch.operands
    request = KernelRequest(
        scaled.project_scaled,
        {"rows": "*i32", "x": f"tensordesc<bf16[{chosen.rows}, 128]>"}
        | {"w": f"tensordesc<u8[{chosen.outputs}, 128]>", "weight": "*u8"}
        | {"bias": "*fp32", "out": out, "partials": "*fp32", "arrivals": "*i32"},
        {"N": outputs, "K": width, "BN": chosen.outputs, "BM": chosen.rows, "GROUP": _GROUP}
        | {"PARTS": parts, "APART": chosen.apart}
        | {"FP8": fp8, "EPILOGUE": epilogue, "BIAS": bias}
        | {"SETTLED": "rows" in launch.settled},
        chosen.warps,
        chosen.stages,
    )
    values: dict[str, Argument] = {
        "rows": At("rows"),
        "x": TensorMap("x", width),
        "w": TensorMap("weight", width),
        "weight": At("weight"),
        "bias": At("bias" if bias else "out"),  # without one nothing looks there
        "out": At("out"),
        "partials": Scratch(
            "partials", pb.DTYPE_F32, (max(1, parts * apart * chosen.outputs * chosen.rows),)
        ),
        "arrivals": Counters(max(1, apart)),
    }
    grid = (tiles, parts if chosen.apart else 1, 1)
    return CudaKernel(request, grid, values, settled=launch.settled & {"rows"})
