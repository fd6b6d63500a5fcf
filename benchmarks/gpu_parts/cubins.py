"""Compiles the measured variants into a folder, without a GPU; the GPU's side only loads it.

A folder holds `NAME.cubin` files and `kernels.json`: for each variant the launch description.
Needs Triton (extra `cuda-prepare`).
"""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

from gpu_parts.geometries import (
    ADD,
    F32,
    GEOMETRIES,
    Attention,
    Projection,
    attention_variants,
    projection_variants,
)
from helios.errors import ContractError
from ignition.kernels.cuda import attention, attention_warps, decode, projection
from ignition.kernels.cuda.compile import KernelRequest, compile
from ignition.kernels.cuda.projection_warps import project_in_groups


def request_of(variant: Projection | Attention) -> KernelRequest:
    """The compiler's request for a variant."""
    if isinstance(variant, Attention):
        return _attention_request(variant)
    return _projection_request(variant)


def compile_all(folder: Path, architecture: str, processes: int) -> list[str]:
    """Writes every variant to `folder`; returns what the compiler refused, a line each."""
    folder.mkdir(parents=True, exist_ok=True)
    variants: list[Projection | Attention] = []
    for geometry in GEOMETRIES:
        for shape in geometry.projections.values():
            variants += projection_variants(*shape)
        variants += attention_variants(geometry)
    entries = []
    refused = []
    with ProcessPoolExecutor(processes) as pool:
        work = [pool.submit(_compile_one, folder, architecture, variant) for variant in variants]
        for done in work:
            entry = done.result()
            if isinstance(entry, str):
                refused.append(entry)
            else:
                entries.append(entry)
    (folder / "kernels.json").write_text(json.dumps(entries, indent=1))
    return refused


def _compile_one(
    folder: Path, architecture: str, variant: Projection | Attention
) -> dict[str, object] | str:
    request = request_of(variant)
    try:
        compiled = compile(request, architecture)
    except ContractError as error:
        return f"{variant.label}: {error}"
    (folder / f"{request.name}.cubin").write_bytes(compiled.cubin)
    described = {key: value for key, value in asdict(compiled).items() if key != "cubin"}
    kind = type(variant).__name__
    return {"kind": kind, "variant": asdict(variant), "file": request.name, **described}


def _projection_request(v: Projection) -> KernelRequest:
    wide = v.epilogue in (ADD, F32)
    arguments = {
        "rows": "*i32",
        "x": "*bf16",
        "w": "*bf16",
        "bias": "*fp32",
        "out": "*fp32" if wide else "*bf16",
    }
    constants = {
        "N": v.outputs,
        "K": v.width,
        "SPLITS": v.splits,
        "BN": v.outputs_block,
        "BM": v.rows_block,
        "BK": v.width_block,
        "ROWS_FIRST": v.rows_first,
        "EPILOGUE": v.epilogue,
        "BIAS": False,
        "SETTLED": False,
    }
    if v.kind == "groups":
        arguments["x"] = f"tensordesc<bf16[{v.rows_block}, {v.width_block}]>"
        arguments["w"] = f"tensordesc<bf16[{v.outputs_block}, {v.width_block}]>"
        for name in ("SPLITS", "ROWS_FIRST", "SETTLED"):
            del constants[name]
        constants |= {"STAGES": v.stages, "GROUP": 8, "WEIGHED": False}
        arguments |= {"squares": "*fp32", "epsilon": "fp32"}
        return KernelRequest(project_in_groups, arguments, constants, v.warps, 1)
    arguments |= {"factor": "*fp32", "weighed": "*bf16", "squares": "*fp32"}
    constants |= {"BLOCKS": 0, "PADDED_BLOCKS": 1, "BLOCK": 1}
    if v.kind == "few":
        function = projection.project_few
        arguments |= {"partials": "*fp32", "arrivals": "*i32"}
    else:
        function = projection.project_many
        arguments["x"] = f"tensordesc<bf16[{v.rows_block}, {v.width_block}]>"
        arguments["w"] = f"tensordesc<bf16[{v.outputs_block}, {v.width_block}]>"
        constants |= {"GROUP": 8, "FLATTEN": v.flatten}
    arguments["epsilon"] = "fp32"
    return KernelRequest(function, arguments, constants, v.warps, v.stages)


def _attention_request(v: Attention) -> KernelRequest:
    single = v.kind == "decode"
    arguments = {"rows": "*i32"}
    if not single:
        arguments |= {"lanes": "*i32", "query_lengths": "*i32"}
    arguments["q"] = "*fp16"
    arguments |= dict.fromkeys(("keys", "values"), f"tensordesc<fp16[{v.page}, {v.head_dim}]>")
    arguments |= dict.fromkeys(("positions", "slots", "page_table"), "*i32")
    arguments["out"] = "*bf16"
    if single:
        arguments |= {"key_plane": "*fp16", "value_plane": "*fp16"}
        arguments |= {"partials": "*fp32", "arrivals": "*i32"}
    if not single:
        arguments["lane_capacity"] = "i32"
    arguments |= {"table_pages": "i32", "slot_count": "i32"}
    arguments |= ({"pages": "i32"} if single else {}) | {"scale_log2": "fp32"}
    constants = {
        "Q_HEADS": v.q_heads,
        "KV_HEADS": v.kv_heads,
        "D": v.head_dim,
        "PAGE": v.page,
        "SPLIT": v.split,
        "WINDOW": v.window,
        "ROWS": v.rows,
    }
    if single:
        height = 1 << (v.q_heads // v.kv_heads - 1).bit_length()
        constants |= {"HEIGHT": height, "ALONE": False, "SETTLED": False}
    else:
        constants["LANES"] = 8
    if v.groups:
        del constants["WINDOW"], constants["ROWS"]
        constants |= {"STAGES": v.stages}
        function = attention_warps.attend_prefill_in_groups
        return KernelRequest(function, arguments, constants, v.warps, 1)
    function = decode.attend_decode if single else attention.attend_prefill
    return KernelRequest(function, arguments, constants, v.warps, v.stages)
