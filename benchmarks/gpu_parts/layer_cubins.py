"""Compiles the ways of doing a layer into a folder: cubins and `plans.json`. Needs Triton."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from gpu_parts.geometries import GEOMETRIES
from gpu_parts.layer_ways import PlannedLaunch, lowered, ways
from helios.errors import ContractError
from helios.runtime.manifest import DType
from ignition.kernels.cuda.compile import KernelRequest, compile
from ignition.kernels.cuda.launches import (
    Argument,
    At,
    Counters,
    CudaKernel,
    RowsOf,
    Scratch,
    TensorMap,
)


def compile_plans(
    folder: Path, models: list[str], rows: list[int], processes: int, chosen: bool
) -> None:
    """Writes every way of the models and numbers of rows, or the `chosen` one alone; what can't be
    compiled is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    plans: list[dict[str, Any]] = []
    requests: dict[str, KernelRequest] = {}
    for geometry in GEOMETRIES:
        for count in rows:
            if geometry.name not in models:
                continue
            for way in ways(geometry, count)[: 1 if chosen else None]:
                kernels = lowered(geometry, count, way)
                requests |= {kernel.request.name: kernel.request for kernel, _ in kernels}
                plans.append(
                    {"model": geometry.name, "rows": count, "way": way.name, "parts": way.parts}
                    | {"launches": [described(kernel, window) for kernel, window in kernels]}
                )
    # Kernels can't be sent to another process; a fork has them.
    _requests.update(requests)
    with ProcessPoolExecutor(processes, mp_context=get_context("fork")) as pool:
        done = dict(zip(requests, pool.map(partial(_compile_one, folder), requests), strict=True))
    for name, refused in done.items():
        if isinstance(refused, str):
            print(f"refused: {name}: {refused}")
    kernels = {name: found for name, found in done.items() if not isinstance(found, str)}
    fitting = [p for p in plans if all(launch["kernel"] in kernels for launch in p["launches"])]
    (folder / "plans.json").write_text(json.dumps({"kernels": kernels, "plans": fitting}))
    print(f"{len(kernels)} kernels, {len(fitting)} ways")


_requests: dict[str, KernelRequest] = {}


def _compile_one(folder: Path, name: str) -> dict[str, Any] | str:
    request = _requests[name]
    try:
        compiled = compile(request)
    except ContractError as error:
        return str(error)
    (folder / f"{request.name}.cubin").write_bytes(compiled.cubin)
    facts = {key: value for key, value in asdict(compiled).items() if key != "cubin"}
    return {"file": request.name, **facts}


def described(kernel: CudaKernel, window: list[PlannedLaunch]) -> dict[str, Any]:
    """A launch for `plans.json`: operands by what they hold."""
    arguments = [_argument(kernel.arguments[name], window) for name in kernel.request.arguments]
    return {"kernel": kernel.request.name, "grid": kernel.grid, "arguments": arguments}


def _argument(value: Argument, window: list[PlannedLaunch]) -> list[Any]:
    if isinstance(value, At):
        return ["at", window[value.launch].places.get(value.operand, "")]
    if isinstance(value, TensorMap):
        return ["map", window[value.launch].places[value.operand], value.columns]
    if isinstance(value, RowsOf):
        return ["rows", window[value.launch].places[value.operand], value.row_nbytes]
    if isinstance(value, Counters):
        return ["counters", value.count]
    if isinstance(value, Scratch):
        elements = 1
        for extent in value.shape:
            elements *= extent
        return ["scratch", elements * DType(value.dtype).row_nbytes(1)]
    return ["value", value]
