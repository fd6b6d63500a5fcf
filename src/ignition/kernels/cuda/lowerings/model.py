"""Lowerings of a forward pass: embedding, norms, projections, rotation and attention."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from helios.errors import ContractError
from helios.kernels.catalogue import ActivationFormat
from helios.schema import execution_pb2 as pb
from ignition.kernels.cuda import attention as attending
from ignition.kernels.cuda import decode, rotary, rows
from ignition.kernels.cuda.compile import KernelRequest
from ignition.kernels.cuda.launches import (
    Argument,
    At,
    CatalogueLaunch,
    Counters,
    CudaKernel,
    RowsOf,
    Scratch,
    TensorMap,
)

PAGE_TOKENS: Final = 64  # what a split is made of; docs/cuda.md
SPLIT_TOKENS: Final = 256
# Types of embedding tables by their packing.
TABLES: Final[Mapping[int, str]] = {pb.PACKING_ROWS_BF16: "*bf16", pb.PACKING_ROWS_Q8: "*u8"}
_POINTERS: Final = {ActivationFormat.F32: "*fp32", ActivationFormat.BF16: "*bf16"}
_I32: Final = 4
_F16: Final = 2
# Partial results of attention may take this much; beyond it a row's splits stay with one CTA.
_PARTIALS_LIMIT_NBYTES: Final = 256 << 20


def embed(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """A row a program, or a piece of it where rows are few."""
    at = launch.integers
    table = TABLES.get(at["packing"])
    if table is None:
        raise ContractError(
            f"the packing is {at['packing']}",
            where=launch.kernel,
            remedy=f"Embeddings are ROWS_BF16 ({pb.PACKING_ROWS_BF16}) or ROWS_Q8"
            f" ({pb.PACKING_ROWS_Q8})",
        )
    block = min(power_of_two(at["width"]), 1024)
    request = KernelRequest(
        rows.embed,
        {"rows": "*i32", "tokens": "*i32", "table": table, "out": "*fp32"}
        | {"vocab": "i32", "scale": "fp32"},
        {"WIDTH": at["width"], "BLOCK": block},
        num_warps=4,
        num_stages=1,
    )
    operands = {name: At(name) for name in ("rows", "tokens", "table", "out")}
    scalars = {"vocab": at["vocab"], "scale": launch.floats["scale"]}
    grid = (at["capacity"], -(-at["width"] // block), 1)
    return (CudaKernel(request, grid, {**operands, **scalars}),)


def rms_norm(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """Some rows a program; a warp a row where there are many."""
    at = launch.integers
    padded = max(power_of_two(at["width"]), 64)
    together = 4 if at["capacity"] >= 64 and padded <= 4096 else 1
    request = KernelRequest(
        rows.rms_norm,
        {"rows": "*i32", "x": "*fp32", "weight": "*fp32", "out": pointer(launch, "format")}
        | {"epsilon": "fp32"},
        {"WIDTH": at["width"], "PADDED": padded, "ROWS": together},
        num_warps=4 if padded <= 4096 else 8,
        num_stages=1,
    )
    operands = {name: At(name) for name in ("rows", "x", "weight", "out")}
    grid = (-(-at["capacity"] // together), 1, 1)
    return (CudaKernel(request, grid, {**operands, "epsilon": launch.floats["epsilon"]}),)


def rope_and_cache_f16(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """All heads of a row in a program, a few of them where rows are few."""
    at = launch.integers
    check_heads(launch)
    heads = at["q_heads"] + 2 * at["kv_heads"]
    together = min(power_of_two(heads), 4 if at["capacity"] <= 64 else 64)
    names = (
        *("rows", "qkv", "positions", "slot", "page_table", "inverse_frequency", "q_norm"),
        *("k_norm", "queries", "k_plane", "v_plane"),
    )
    parameters = list(rotary.rope_and_cache.arg_names)[: len(names)]
    kinds = ("*i32", "*fp32", "*i32", "*i32", "*i32", *("*fp32",) * 3, *("*fp16",) * 3)
    request = KernelRequest(
        rotary.rope_and_cache,
        dict(zip(parameters, kinds, strict=True))
        | dict.fromkeys(("table_pages", "slot_count", "pages"), "i32")
        | dict.fromkeys(("epsilon", "attention_factor"), "fp32"),
        {"Q_HEADS": at["q_heads"], "KV_HEADS": at["kv_heads"], "D": at["head_dim"]}
        | {"PAGE": at["page_tokens"], "HEADS": together}
        | {"Q_NORM": "q_norm" in launch.operands, "K_NORM": "k_norm" in launch.operands},
        num_warps=1 if together <= 4 else 4,
        num_stages=1,
    )
    operands = {p: At(name) for p, name in zip(parameters, names, strict=True)}
    counts: dict[str, Argument] = {
        "table_pages": at["table_pages"],
        "slot_count": slot_count(at["table_pages"]),
        "pages": RowsOf("k_plane", page_nbytes(launch)),
    }
    floats = {name: launch.floats[name] for name in ("epsilon", "attention_factor")}
    grid = (at["capacity"], -(-heads // together), 1)
    return (CudaKernel(request, grid, {**operands, **counts, **floats}),)


def attention_f16(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """Tiles of a lane's rows where lanes have several, else rows one by one."""
    check_attention(launch)
    return (_prefill(launch) if "lanes" in launch.operands else _decode(launch),)


def check_attention(launch: CatalogueLaunch) -> None:
    """Raises ContractError for heads or pages that the kernels don't take."""
    check_heads(launch)
    at = launch.integers
    if at["page_tokens"] != PAGE_TOKENS:
        raise ContractError(
            f"pages have {at['page_tokens']} tokens",
            where=launch.kernel,
            remedy=f"Attention on a GPU takes pages of {PAGE_TOKENS}",
        )
    if at["q_heads"] // at["kv_heads"] > 128:
        raise ContractError(
            f"{at['q_heads']} query heads share {at['kv_heads']} key heads",
            where=launch.kernel,
            remedy="Attention on a GPU takes 128 query heads a key head at most",
        )


def _decode(launch: CatalogueLaunch) -> CudaKernel:
    plan = DecodePlan.of(launch)
    request = KernelRequest(
        decode.attend_decode,
        {"rows": "*i32", **_attention_arguments(launch), "partials": "*fp32", "arrivals": "*i32"}
        | dict.fromkeys(("table_pages", "slot_count"), "i32")
        | {"scale_log2": "fp32"},
        attention_constants(launch, plan.height) | {"ALONE": plan.workers == 1},
        num_warps=4,
        num_stages=2,
    )
    values = {"rows": At("rows"), **_attention_values(launch), **plan.scratch}
    return CudaKernel(request, plan.grid, values)


@dataclass(frozen=True)
class DecodePlan:
    """How the splits of rows are shared out."""

    height: int
    workers: int
    grid: tuple[int, int, int]
    scratch: Mapping[str, Argument]

    @staticmethod
    def of(launch: CatalogueLaunch) -> DecodePlan:
        """For an `attention_f16` without lanes."""
        at = launch.integers
        group = at["q_heads"] // at["kv_heads"]
        splits = -(-at["table_pages"] * PAGE_TOKENS // SPLIT_TOKENS)
        elements = at["capacity"] * at["kv_heads"] * splits * group * (at["head_dim"] + 2)
        workers = decode_workers(launch, splits) if 4 * elements <= _PARTIALS_LIMIT_NBYTES else 1
        several = workers > 1
        return DecodePlan(
            height=64 if group <= 64 else 128,
            workers=workers,
            grid=(at["kv_heads"], workers, at["capacity"]),
            scratch={
                "partials": Scratch("partials", pb.DTYPE_F32, (elements if several else 1,)),
                "arrivals": Counters(at["capacity"] * at["kv_heads"] if several else 1),
            },
        )


def decode_workers(launch: CatalogueLaunch, splits: int) -> int:
    """CTAs that share a row's splits: about two for each multiprocessor, all rows together."""
    at = launch.integers
    wanted = 2 * launch.architecture.processors // (at["kv_heads"] * at["capacity"])
    return max(1, min(wanted, splits, 32))


def _prefill(launch: CatalogueLaunch) -> CudaKernel:
    at = launch.integers
    group = at["q_heads"] // at["kv_heads"]
    # Tall tiles read each key less often; there must be enough of them to fill the GPU.
    tall = at["capacity"] * at["q_heads"] >= 128 * launch.architecture.processors
    height = 128 if tall or group > 64 else 64
    tokens = height // group
    request = KernelRequest(
        attending.attend_prefill,
        dict.fromkeys(("rows", "lanes", "query_lengths"), "*i32")
        | _attention_arguments(launch)
        | dict.fromkeys(("lane_capacity", "table_pages", "slot_count"), "i32")
        | {"scale_log2": "fp32"},
        attention_constants(launch, height) | {"LANES": power_of_two(at["lane_capacity"])},
        num_warps=height // 16,
        num_stages=3 if height == 128 and at["head_dim"] <= 128 else 2,
    )
    values: dict[str, Argument] = {
        "rows": At("rows"),
        "lanes": At("lanes"),
        "query_lengths": At("query_length"),
        **_attention_values(launch),
        "lane_capacity": at["lane_capacity"],
    }
    tiles = -(-at["capacity"] // tokens) + at["lane_capacity"]
    return CudaKernel(request, (at["kv_heads"], tiles, 1), values)


def _attention_arguments(launch: CatalogueLaunch) -> dict[str, str]:
    plane = f"tensordesc<fp16[{PAGE_TOKENS}, {launch.integers['head_dim']}]>"
    return {
        "q": "*fp16",
        **dict.fromkeys(("keys", "values"), plane),
        **dict.fromkeys(("positions", "slots", "page_table"), "*i32"),
        "out": pointer(launch, "format"),
    }


def attention_constants(launch: CatalogueLaunch, height: int) -> dict[str, int]:
    """What the attention kernels have in common."""
    at = launch.integers
    return {
        "Q_HEADS": at["q_heads"],
        "KV_HEADS": at["kv_heads"],
        "D": at["head_dim"],
        "PAGE": PAGE_TOKENS,
        "SPLIT": SPLIT_TOKENS,
        "WINDOW": at["window"],
        "ROWS": height,
    }


def _attention_values(launch: CatalogueLaunch) -> dict[str, Argument]:
    at = launch.integers
    return {
        "q": At("queries"),
        "keys": TensorMap("k_plane", at["head_dim"]),
        "values": TensorMap("v_plane", at["head_dim"]),
        "positions": At("positions"),
        "slots": At("slot"),
        "page_table": At("page_table"),
        "out": At("out"),
        "table_pages": at["table_pages"],
        "slot_count": slot_count(at["table_pages"]),
        "scale_log2": launch.floats["scale"] * math.log2(math.e),
    }


def slot_count(table_pages: int, launch: int = 0) -> RowsOf:
    """Request slots, by their rows of the page table."""
    return RowsOf("page_table", _I32 * table_pages, launch)


def page_nbytes(launch: CatalogueLaunch) -> int:
    """Bytes of a page of one plane."""
    at = launch.integers
    return _F16 * at["kv_heads"] * at["page_tokens"] * at["head_dim"]


def power_of_two(count: int) -> int:
    """The power of two at or above `count`."""
    return 1 << (count - 1).bit_length()


def pointer(launch: CatalogueLaunch, attribute: str) -> str:
    """The type of an activation operand. Raises ContractError for a format that a GPU hasn't."""
    form = ActivationFormat(launch.integers[attribute])
    if form not in _POINTERS:
        raise ContractError(
            f"{attribute} is {form.name.lower()}",
            where=launch.kernel,
            remedy="Kernels of a GPU take f32 and bf16 activations",
        )
    return _POINTERS[form]


def check_packing(launch: CatalogueLaunch) -> None:
    """Raises ContractError where weights lie otherwise than row by row."""
    packing = launch.integers["packing"]
    if packing != pb.PACKING_ROWS_BF16:
        raise ContractError(
            f"the packing is {packing}",
            where=launch.kernel,
            remedy=f"Kernels of a GPU take ROWS_BF16 ({pb.PACKING_ROWS_BF16}), ROWS_Q8"
            f" ({pb.PACKING_ROWS_Q8}) and ROWS_FP8 ({pb.PACKING_ROWS_FP8})",
        )


def check_heads(launch: CatalogueLaunch) -> None:
    """Raises ContractError for heads that don't fill a tile."""
    width = launch.integers["head_dim"]
    if width != power_of_two(width) or not 16 <= width <= 256:
        raise ContractError(
            f"heads are {width} wide",
            where=launch.kernel,
            remedy="Kernels of a GPU take heads of 16, 32, 64, 128 or 256",
        )
