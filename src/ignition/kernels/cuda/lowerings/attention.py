"""Lowerings of paged attention: how the splits of rows are shared out, and tiles of prompts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from helios.errors import ContractError
from helios.schema import execution_pb2 as pb
from ignition.kernels.cuda import attention as attending
from ignition.kernels.cuda import attention_warps, decode
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
from ignition.kernels.cuda.lowerings.model import (
    check_heads,
    places_settled,
    pointer,
    power_of_two,
    settled,
    slot_count,
)

PAGE_TOKENS: Final = 64  # what a split is made of; docs/cuda.md
SPLIT_TOKENS: Final = 256
_F32: Final = 4
# Partial results of attention may take this much; beyond it a row's splits stay with one CTA.
_PARTIALS_LIMIT_NBYTES: Final = 256 << 20
# CTAs of selected rows, of which few may live: those of the others end at once.
_SELECTED_CTAS: Final = 8192


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
    # Tiles of 128 rows by 256 columns don't fit into shared memory.
    most = 128 if at["head_dim"] <= 128 else 64
    if at["q_heads"] // at["kv_heads"] > most:
        raise ContractError(
            f"{at['q_heads']} query heads share {at['kv_heads']} key heads",
            where=launch.kernel,
            remedy=f"Attention on a GPU takes {most} query heads a key head at most where heads are"
            f" {at['head_dim']} wide",
        )


def _decode(launch: CatalogueLaunch) -> CudaKernel:
    plan = DecodePlan.of(launch)
    request = KernelRequest(
        decode.attend_decode,
        {"rows": "*i32", **_attention_arguments(launch), "partials": "*fp32", "arrivals": "*i32"}
        | dict.fromkeys(("table_pages", "slot_count"), "i32")
        | {"scale_log2": "fp32"},
        attention_constants(launch, plan.height)
        | {"ALONE": plan.workers == 1, "SETTLED": places_settled(launch)},
        num_warps=4,
        num_stages=2,
    )
    values = {
        "rows": At("rows"),
        **_attention_values(launch),
        **plan.scratch(kept=plan.workers > 1),
    }
    return CudaKernel(request, plan.grid, values, settled=settled(launch))


@dataclass(frozen=True)
class DecodePlan:
    """How the splits of rows are shared out; `partials`: elements of their results, of which there
    may be too many to keep. `group`: query heads of a key head."""

    height: int
    group: int
    workers: int
    grid: tuple[int, int, int]
    partials: int
    counters: int

    @staticmethod
    def of(launch: CatalogueLaunch) -> DecodePlan:
        """For an `attention_f16` without lanes."""
        at = launch.integers
        group = at["q_heads"] // at["kv_heads"]
        splits = -(-at["table_pages"] * PAGE_TOKENS // SPLIT_TOKENS)
        pairs = at["capacity"] * at["kv_heads"]
        elements = pairs * splits * group * (at["head_dim"] + 2)
        few = _F32 * elements <= _PARTIALS_LIMIT_NBYTES
        workers = decode_workers(launch, splits) if few else 1
        return DecodePlan(
            height=64 if group <= 64 else 128,
            group=group,
            workers=workers,
            grid=(at["kv_heads"], workers, at["capacity"]),
            partials=elements,
            counters=pairs,
        )

    @property
    def keepable(self) -> bool:
        """Whether results may be kept even where a row has one worker."""
        return _F32 * self.partials <= _PARTIALS_LIMIT_NBYTES

    def scratch(self, *, kept: bool) -> dict[str, Argument]:
        """Arguments of the kernels; `kept`: whether splits go to scratch."""
        return {
            "partials": Scratch("partials", pb.DTYPE_F32, (self.partials if kept else 1,)),
            "arrivals": Counters(self.counters if kept else 1),
        }


def decode_workers(launch: CatalogueLaunch, splits: int) -> int:
    """CTAs that share a row's splits: about two for each multiprocessor, all rows together, and
    more where one row may be all."""
    at = launch.integers
    ctas = _SELECTED_CTAS if launch.selected else 2 * launch.architecture.processors
    return max(1, min(ctas // (at["kv_heads"] * at["capacity"]), splits, 32))


def _prefill(launch: CatalogueLaunch) -> CudaKernel:
    at = launch.integers
    group = at["q_heads"] // at["kv_heads"]
    # Tall tiles read each key less often; there must be enough of them to fill the GPU.
    tall = at["capacity"] * at["q_heads"] >= 128 * launch.architecture.processors
    height = 128 if tall or group > 64 else 64
    tokens = height // group
    constants = attention_constants(launch, height) | {"LANES": power_of_two(at["lane_capacity"])}
    # Groups of warps name the instructions of one architecture.
    of_groups = launch.architecture.name == "sm_90"
    in_groups = of_groups and tall and at["head_dim"] in (64, 128) and not at["window"]
    if in_groups:
        for absent in ("WINDOW", "ROWS"):
            del constants[absent]
        constants["STAGES"] = 3
    request = KernelRequest(
        attention_warps.attend_prefill_in_groups if in_groups else attending.attend_prefill,
        dict.fromkeys(("rows", "lanes", "query_lengths"), "*i32")
        | _attention_arguments(launch)
        | dict.fromkeys(("lane_capacity", "table_pages", "slot_count"), "i32")
        | {"scale_log2": "fp32"},
        constants,
        num_warps=4 if in_groups else height // 16,
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
