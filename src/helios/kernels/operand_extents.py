"""How much of each operand a kernel touches, as docs/kernels.md has it.

An extent is what the last dimension is multiplied by before it: `"capacity * width"` is `capacity`
rows of `width`. Its factors are attributes, numbers, or what follows from attributes (`DERIVED`).
What is indexed by values in memory (slots, pages, rows that are saved) has one row at the least, or
nothing where a row's width isn't said. The native library has the same in C++; a test holds both
against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType
from typing import Final

from helios.kernels.catalogue import (
    BAD_WORD_CAPACITY,
    BIAS_CAPACITY,
    COMPLETION_LANE_COLUMNS,
    EOS_CAPACITY,
    MASK_WORD_BITS,
    RECENT_CAPACITY,
    STOP_CAPACITY,
    TOP_CAPACITY,
)

Attributes = Mapping[str, int]
Factors = tuple[str, ...]


def _mask_words(attributes: Attributes) -> int:
    return -(-attributes["vocab"] // MASK_WORD_BITS)


def _row_of_heads(attributes: Attributes) -> int:
    return (attributes["q_heads"] + 2 * attributes["kv_heads"]) * attributes["head_dim"]


# Factors that follow from attributes.
DERIVED: Final[Mapping[str, Callable[[Attributes], int]]] = MappingProxyType(
    {
        "mask_words": _mask_words,
        "row_of_heads": _row_of_heads,
        "query_row": lambda attributes: attributes["q_heads"] * attributes["head_dim"],
        "half_head": lambda attributes: attributes["head_dim"] // 2,
    }
)


def _extents(listing: str) -> dict[str, Factors]:
    """Parses `"capacity: index value; 0: target"`."""
    found: dict[str, Factors] = {}
    for part in listing.split(";"):
        extent, _, names = part.partition(":")
        factors = tuple(extent.replace(" ", "").split("*"))
        found.update(dict.fromkeys(names.split(), factors))
    return found


_LINEAR: Final = "1: rows; capacity * width: x; outputs * width: weight; capacity * outputs: out"
_SILU: Final = "1: rows; capacity * width: x; 2 * outputs * width: weight; capacity * outputs: out"
_PAGED: Final = (
    "1: rows; capacity: positions slot; table_pages: page_table;"
    " kv_heads * head_dim * page_tokens: k_plane v_plane"
)
_ROPE: Final = (
    f"{_PAGED}; capacity * row_of_heads: qkv; half_head: inverse_frequency; head_dim: q_norm k_norm"
)
_ATTENTION: Final = f"{_PAGED}; capacity * row_of_heads: qkv; capacity * query_row: out"
_PAGE: Final = (
    "1: rows; capacity: slot endpoint row; table_pages: page_table; elements: plane saved"
)
_SAMPLE: Final = (
    "1: rows; capacity: lane slot query_length tokens logprobs; 0: state; capacity * stride: logits"
)
_TOP: Final = f"capacity * {TOP_CAPACITY}: top_tokens top_logprobs"
_SCORE: Final = "1: rows; capacity: target out; capacity * stride: logits"

OPERAND_EXTENTS: Final[Mapping[str, Mapping[str, Factors]]] = {
    "scatter_i32": _extents("1: rows; capacity: index value; 0: target"),
    "initialize_requests": _extents(
        "1: rows; capacity: slot generation consumed emitted output_limit temperature top_k top_p"
        f" min_p; capacity * 2: seed; capacity * {EOS_CAPACITY}: eos_ids; 0: state"
    ),
    "load_pending": _extents("1: rows; capacity: slot generation tokens positions; 0: state"),
    "embed": _extents(
        "1: rows; capacity: tokens; vocab * width: table; capacity * width: out",
    ),
    "rms_norm": _extents("1: rows; capacity * width: x out; width: weight"),
    "linear": _extents(f"{_LINEAR}; outputs: bias"),
    "linear_silu_mul": _extents(_SILU),
    "rope_and_cache": _extents(_ROPE),
    "attention": _extents(_ATTENTION),
    "select_last": _extents(
        "1: rows selected_rows; capacity: query_length sample selected_lane;"
        " packed_capacity * width: x; capacity * width: out"
    ),
    "sample": _extents(_SAMPLE),
    "commit": _extents(
        "1: rows; capacity: slot generation query_length sampled tokens logprobs out_tokens"
        f" out_logprobs; 0: state; capacity * {COMPLETION_LANE_COLUMNS}: lanes"
    ),
    "linear_tuned": _extents(f"{_LINEAR}; outputs: bias; 1: tuning"),
    "linear_silu_mul_tuned": _extents(f"{_SILU}; 1: tuning"),
    "tune_linear": _extents(f"{_LINEAR}; 1: choice"),
    "tune_linear_silu_mul": _extents(f"{_SILU}; 1: choice"),
    "set_pending": _extents("1: rows; capacity: slot generation token; 0: state"),
    "merge_pending": _extents(
        "1: rows decode_lanes; lanes: slot generation; 0: state;"
        " capacity: tokens positions out_tokens out_positions"
    ),
    "slice_rows": _extents("1: rows out"),
    "score": _extents(_SCORE),
    "save_page": _extents(_PAGE),
    "load_page": _extents(_PAGE),
    "copy_rows": _extents("1: rows; capacity: source destination; elements: buffer"),
    "initialize_sampling": _extents(
        "1: rows; capacity: slot repetition_penalty presence_penalty frequency_penalty min_tokens"
        f" top_logprobs; capacity * {STOP_CAPACITY}: stop_ids; capacity * {BIAS_CAPACITY}:"
        f" bias_tokens bias; capacity * {BAD_WORD_CAPACITY}: bad_words;"
        f" capacity * {RECENT_CAPACITY}: recent; capacity * mask_words: mask;"
        " 0: state sampling token_counts output_counts token_mask"
    ),
    "sample_processed": _extents(
        f"{_SAMPLE}; 0: sampling token_counts output_counts token_mask;"
        f" capacity * mask_words: grammar_mask; {_TOP}"
    ),
    "count_sampled": _extents(
        "1: rows; capacity: slot generation sampled tokens;"
        " 0: state sampling token_counts output_counts"
    ),
    "score_ranked": _extents(f"{_SCORE}; capacity: wanted rank; {_TOP}"),
    "rope_and_cache_bf16": _extents(_ROPE),
    "attention_bf16": _extents(_ATTENTION),
    "rope_and_cache_f16": _extents(f"{_ROPE}; capacity * query_row: queries"),
    "attention_f16": _extents(
        f"{_PAGED}; capacity * query_row: queries out; 1: lanes; lane_capacity: query_length"
    ),
    "select_attending": _extents(
        "1: rows selected_rows; capacity: query_length sample selected_lane out_positions out_slot;"
        " packed_capacity * width: x; packed_capacity * elements: queries;"
        " packed_capacity: positions slot; capacity * width: out; capacity * elements: out_queries"
    ),
    "weigh": _extents(
        "1: rows; capacity * width: x out; width: weight; capacity * blocks: squares"
    ),
    "linear_weighed": _extents(f"{_LINEAR}; outputs: bias; capacity * blocks: squares"),
    "linear_silu_mul_weighed": _extents(f"{_SILU}; capacity * blocks: squares"),
}


def resolved(factors: Factors, attributes: Attributes) -> tuple[int, int]:
    """Rows and their width."""
    *rows, width = (
        int(one)
        if one.isdecimal()
        else DERIVED[one](attributes)
        if one in DERIVED
        else attributes[one]
        for one in factors
    )
    return prod(rows), width
