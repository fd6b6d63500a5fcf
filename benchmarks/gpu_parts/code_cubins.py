"""Compiles projections by 8-bit codes into a folder: cubins and `codes.json`. Needs Triton."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpu_parts.code_variants import CodeMatrix, matrices, tiles
from gpu_parts.geometries import ADD, F32
from helios.errors import ContractError
from ignition.kernels.cuda.compile import KernelRequest, compile
from ignition.kernels.cuda.scaled import project_scaled
from ignition.kernels.cuda.scaled_tiles import ScaledTile


def compile_variants(folder: Path, models: list[str], processes: int) -> list[str]:
    """Writes every variant to `folder`; returns what the compiler refused, a line each."""
    folder.mkdir(parents=True, exist_ok=True)
    work = [(folder, matrix, tile) for matrix in matrices(models) for tile in tiles(matrix)]
    with ProcessPoolExecutor(processes) as pool:
        done = list(pool.map(_compile_one, *zip(*work, strict=True)))
    entries = [entry for entry in done if not isinstance(entry, str)]
    (folder / "codes.json").write_text(json.dumps(entries))
    print(f"{len(entries)} kernels")
    return [entry for entry in done if isinstance(entry, str)]


def _compile_one(folder: Path, matrix: CodeMatrix, tile: ScaledTile) -> dict[str, Any] | str:
    request = KernelRequest(
        project_scaled,
        {"rows": "*i32", "x": f"tensordesc<bf16[{tile.rows}, 128]>"}
        | {"w": f"tensordesc<u8[{tile.outputs}, 128]>", "weight": "*u8", "bias": "*fp32"}
        | {"out": "*fp32" if matrix.epilogue in (ADD, F32) else "*bf16"}
        | {"partials": "*fp32", "arrivals": "*i32"},
        {"N": matrix.outputs, "K": matrix.width, "BN": tile.outputs, "BM": tile.rows, "GROUP": 8}
        | {"PARTS": matrix.parts, "APART": tile.apart and matrix.parts > 1}
        | {"FP8": matrix.fp8, "EPILOGUE": matrix.epilogue, "BIAS": False, "SETTLED": False},
        tile.warps,
        tile.stages,
    )
    try:
        compiled = compile(request)
    except ContractError as error:
        return f"{matrix.label} {tile}: {error}"
    (folder / f"{request.name}.cubin").write_bytes(compiled.cubin)
    facts = {key: value for key, value in asdict(compiled).items() if key != "cubin"}
    return {"matrix": asdict(matrix), "tile": asdict(tile), "file": request.name, **facts}
