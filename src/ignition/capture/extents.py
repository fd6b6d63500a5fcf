"""What each kernel needs of its operands: dtype and extent, derived from the attributes.

The same rules as the tables of docs/kernels.md; the recorder checks every launch against them, so
that a recipe's mistake is found while recording, with the operand's name. Operands with a symbolic
count are checked by their row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from helios.kernels.catalogue import EOS_CAPACITY, ActivationFormat
from helios.schema import execution_pb2 as pb
from ignition.capture.handles import ELEMENT_NBYTES, FORMAT_DTYPE, dense_nbytes, packed_nbytes
from ignition.capture.needs import STATE, Attributes, Need, f32, i32, of_slots
from ignition.capture.sampling_extents import SAMPLING_RULES

# Element types by the number that a `dtype` attribute holds.
_DTYPES: Final = {int(dtype): dtype for dtype in ELEMENT_NBYTES}


def _activation(form: int, rows: int, width: int) -> Need:
    dtype = FORMAT_DTYPE[ActivationFormat(form)]
    return Need(dtype, dense_nbytes(dtype, (rows, width)))


def _matrix(packing: int, outputs: int, width: int) -> Need:
    return Need(None, packed_nbytes(packing, outputs, width), packing=packing)


def _page_table(a: Attributes) -> Need:
    return of_slots(pb.DTYPE_I32, a["table_pages"])


def _plane(a: Attributes, dtype: pb.DType) -> Need:
    elements = a["kv_heads"] * a["head_dim"] * a["page_tokens"]
    return Need(dtype, dense_nbytes(dtype, (elements,)), pb.LEADING_COUNT_CACHE_PAGES)


def _scatter_i32(a: Attributes) -> dict[str, Need]:
    r = a["capacity"]
    return {"index": i32(r), "value": i32(r), "target": Need(pb.DTYPE_I32, 4)}


def _initialize_requests(a: Attributes) -> dict[str, Need]:
    r = a["capacity"]
    return {
        **dict.fromkeys(
            ("slot", "generation", "consumed", "emitted", "output_limit", "top_k"), i32(r)
        ),
        "seed": Need(pb.DTYPE_U32, 8 * r),
        **dict.fromkeys(("temperature", "top_p", "min_p"), f32(r)),
        "eos_ids": i32(r, EOS_CAPACITY),
        "state": STATE,
    }


def _load_pending(a: Attributes) -> dict[str, Need]:
    rows = dict.fromkeys(("slot", "generation", "tokens", "positions"), i32(a["capacity"]))
    return {**rows, "state": STATE}


def _embed(a: Attributes) -> dict[str, Need]:
    return {
        "tokens": i32(a["capacity"]),
        "table": _matrix(a["packing"], a["vocab"], a["width"]),
        "out": f32(a["capacity"], a["width"]),
    }


def _rms_norm(a: Attributes) -> dict[str, Need]:
    return {
        "x": f32(a["capacity"], a["width"]),
        "weight": f32(a["width"]),
        "out": _activation(a["format"], a["capacity"], a["width"]),
    }


def _linear(a: Attributes) -> dict[str, Need]:
    return {
        "x": _activation(a["format"], a["capacity"], a["width"]),
        "weight": _matrix(a["packing"], a["outputs"], a["width"]),
        "bias": f32(a["outputs"]),
        "out": f32(a["capacity"], a["outputs"]),
    }


def _linear_silu_mul(a: Attributes) -> dict[str, Need]:
    return {
        "x": _activation(a["format"], a["capacity"], a["width"]),
        "weight": _matrix(a["packing"], 2 * a["outputs"], a["width"]),
        "out": _activation(a["out_format"], a["capacity"], a["outputs"]),
    }


def _weigh(a: Attributes) -> dict[str, Need]:
    return {**_rms_norm(a), **_squares(a)}


def _squares(a: Attributes) -> dict[str, Need]:
    return {"squares": f32(a["capacity"], a["blocks"])}


def _linear_weighed(a: Attributes) -> dict[str, Need]:
    return {**_linear(a), **_squares(a)}


def _linear_silu_mul_weighed(a: Attributes) -> dict[str, Need]:
    return {**_linear_silu_mul(a), **_squares(a)}


def _heads(a: Attributes, dtype: pb.DType) -> dict[str, Need]:
    return {
        "qkv": f32(a["capacity"], (a["q_heads"] + 2 * a["kv_heads"]) * a["head_dim"]),
        "positions": i32(a["capacity"]),
        "slot": i32(a["capacity"]),
        "page_table": _page_table(a),
        "k_plane": _plane(a, dtype),
        "v_plane": _plane(a, dtype),
    }


def _rope_and_cache(a: Attributes, dtype: pb.DType = pb.DTYPE_F16) -> dict[str, Need]:
    return {
        **_heads(a, dtype),
        "inverse_frequency": f32(a["head_dim"] // 2),
        "q_norm": f32(a["head_dim"]),
        "k_norm": f32(a["head_dim"]),
    }


def _attention(a: Attributes, dtype: pb.DType = pb.DTYPE_F16) -> dict[str, Need]:
    out = _activation(a["format"], a["capacity"], a["q_heads"] * a["head_dim"])
    return {**_heads(a, dtype), "out": out}


def _f16(*shape: int) -> Need:
    return Need(pb.DTYPE_F16, dense_nbytes(pb.DTYPE_F16, shape))


def _rope_and_cache_f16(a: Attributes) -> dict[str, Need]:
    queries = _f16(a["capacity"], a["q_heads"] * a["head_dim"])
    return {**_rope_and_cache(a), "queries": queries}


def _attention_f16(a: Attributes) -> dict[str, Need]:
    by_rows = _attention(a)
    del by_rows["qkv"]
    return {
        **by_rows,
        "queries": _f16(a["capacity"], a["q_heads"] * a["head_dim"]),
        "lanes": i32(1),
        "query_length": i32(a["lane_capacity"]),
    }


def _linear_tuned(a: Attributes) -> dict[str, Need]:
    return {**_linear(a), "tuning": i32(1)}


def _linear_silu_mul_tuned(a: Attributes) -> dict[str, Need]:
    return {**_linear_silu_mul(a), "tuning": i32(1)}


def _tune_linear(a: Attributes) -> dict[str, Need]:
    return {**_linear(a), "choice": i32(1)}


def _tune_linear_silu_mul(a: Attributes) -> dict[str, Need]:
    return {**_linear_silu_mul(a), "choice": i32(1)}


def _set_pending(a: Attributes) -> dict[str, Need]:
    rows = dict.fromkeys(("slot", "generation", "token"), i32(a["capacity"]))
    return {**rows, "state": STATE}


def _merge_pending(a: Attributes) -> dict[str, Need]:
    tokens = ("tokens", "positions", "out_tokens", "out_positions")
    return {
        **dict.fromkeys(tokens, i32(a["capacity"])),
        **dict.fromkeys(("slot", "generation"), i32(a["lanes"])),
        "decode_lanes": i32(1),
        "state": STATE,
    }


def _slice_rows(a: Attributes) -> dict[str, Need]:
    return {"out": i32(1)}


def _elements(a: Attributes, leading: pb.LeadingCount) -> Need:
    dtype = _DTYPES[a["dtype"]]
    return Need(dtype, dense_nbytes(dtype, (a["elements"],)), leading)


def _page_copy(a: Attributes) -> dict[str, Need]:
    return {
        **dict.fromkeys(("slot", "endpoint", "row"), i32(a["capacity"])),
        "page_table": _page_table(a),
        "plane": _elements(a, pb.LEADING_COUNT_CACHE_PAGES),
        "saved": _elements(a, pb.LEADING_COUNT_SNAPSHOT_ROWS),
    }


def _copy_rows(a: Attributes) -> dict[str, Need]:
    return {
        **dict.fromkeys(("source", "destination"), i32(a["capacity"])),
        "buffer": _elements(a, pb.LEADING_COUNT_SNAPSHOT_ROWS),
    }


def _select_attending(a: Attributes) -> dict[str, Need]:
    packed, selected = i32(a["packed_capacity"]), i32(a["capacity"])
    dtype = _DTYPES[a["dtype"]]

    def queries(rows: int) -> Need:
        return Need(dtype, dense_nbytes(dtype, (rows, a["elements"])))

    return {
        **SAMPLING_RULES["select_last"](a),
        **dict.fromkeys(("positions", "slot"), packed),
        **dict.fromkeys(("out_positions", "out_slot"), selected),
        "queries": queries(a["packed_capacity"]),
        "out_queries": queries(a["capacity"]),
    }


_RULES: Final[dict[str, Callable[[Attributes], dict[str, Need]]]] = {
    "scatter_i32": _scatter_i32,
    "initialize_requests": _initialize_requests,
    "load_pending": _load_pending,
    "embed": _embed,
    "rms_norm": _rms_norm,
    "linear": _linear,
    "linear_silu_mul": _linear_silu_mul,
    "rope_and_cache": _rope_and_cache,
    "attention": _attention,
    "rope_and_cache_f16": _rope_and_cache_f16,
    "attention_f16": _attention_f16,
    "linear_tuned": _linear_tuned,
    "linear_silu_mul_tuned": _linear_silu_mul_tuned,
    "tune_linear": _tune_linear,
    "tune_linear_silu_mul": _tune_linear_silu_mul,
    "set_pending": _set_pending,
    "merge_pending": _merge_pending,
    "slice_rows": _slice_rows,
    "save_page": _page_copy,
    "load_page": _page_copy,
    "copy_rows": _copy_rows,
    "rope_and_cache_bf16": partial(_rope_and_cache, dtype=pb.DTYPE_BF16),
    "attention_bf16": partial(_attention, dtype=pb.DTYPE_BF16),
    "select_attending": _select_attending,
    "weigh": _weigh,
    "linear_weighed": _linear_weighed,
    "linear_silu_mul_weighed": _linear_silu_mul_weighed,
    **SAMPLING_RULES,
}


def needs(kernel: str, attributes: Attributes) -> dict[str, Need]:
    """What `kernel` needs of each operand, by operand name, with these integer attributes."""
    return {"rows": i32(1), **_RULES[kernel](attributes)}
