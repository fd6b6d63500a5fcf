"""What the elements of each kernel's operands are, as docs/kernels.md has them.

A type is an element type (`i32`), or the name of the attribute that decides: `format` and
`out_format` name an activation format, `packing` a weight layout, `dtype` an element type by the
schema's number. Manifests are held against it; the native library sees bytes only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FORMAT: Final = "format"
OUT_FORMAT: Final = "out_format"
PACKING: Final = "packing"
DTYPE: Final = "dtype"


def _types(listing: str) -> dict[str, str]:
    """Parses `"i32: rows slot; f32: x"`."""
    found = {}
    for part in listing.split(";"):
        kind, _, names = part.partition(":")
        found.update(dict.fromkeys(names.split(), kind.strip()))
    return found


_LINEAR: Final = f"i32: rows; {FORMAT}: x; {PACKING}: weight; f32: bias out"
_SILU: Final = f"i32: rows; {FORMAT}: x; {PACKING}: weight; {OUT_FORMAT}: out"
_PAGE: Final = f"i32: rows slot endpoint row page_table; {DTYPE}: plane saved"
_HEADS: Final = "i32: rows positions slot page_table; f16: k_plane v_plane; f32: qkv"
_PAIR_HEADS: Final = "i32: rows positions slot page_table; bf16: k_plane v_plane; f32: qkv"

OPERAND_TYPES: Final[Mapping[str, Mapping[str, str]]] = {
    "scatter_i32": _types("i32: rows index value target"),
    "initialize_requests": _types(
        "i32: rows slot generation consumed emitted output_limit top_k eos_ids; u32: seed;"
        " f32: temperature top_p min_p; u8: state"
    ),
    "load_pending": _types("i32: rows slot generation tokens positions; u8: state"),
    "embed": _types(f"i32: rows tokens; {PACKING}: table; f32: out"),
    "rms_norm": _types(f"i32: rows; f32: x weight; {FORMAT}: out"),
    "linear": _types(_LINEAR),
    "linear_silu_mul": _types(_SILU),
    "rope_and_cache": _types(f"{_HEADS} inverse_frequency q_norm k_norm"),
    "attention": _types(f"{_HEADS}; {FORMAT}: out"),
    "select_last": _types("i32: rows query_length sample selected_rows selected_lane; f32: x out"),
    "sample": _types("i32: rows lane slot query_length tokens; u8: state; f32: logits logprobs"),
    "commit": _types(
        "i32: rows slot generation query_length sampled tokens lanes out_tokens;"
        " f32: logprobs out_logprobs; u8: state"
    ),
    "linear_tuned": _types(f"{_LINEAR}; i32: tuning"),
    "linear_silu_mul_tuned": _types(f"{_SILU}; i32: tuning"),
    "tune_linear": _types(f"{FORMAT}: x; {PACKING}: weight; f32: out; i32: choice"),
    "tune_linear_silu_mul": _types(
        f"{FORMAT}: x; {PACKING}: weight; {OUT_FORMAT}: out; i32: choice"
    ),
    "set_pending": _types("i32: rows slot generation token; u8: state"),
    "merge_pending": _types(
        "i32: rows decode_lanes slot generation tokens positions out_tokens out_positions;"
        " u8: state"
    ),
    "slice_rows": _types("i32: rows out"),
    "score": _types("i32: rows target; f32: logits out"),
    "save_page": _types(_PAGE),
    "load_page": _types(_PAGE),
    "copy_rows": _types(f"i32: rows source destination; {DTYPE}: buffer"),
    "initialize_sampling": _types(
        "i32: rows slot min_tokens top_logprobs stop_ids bias_tokens bad_words recent token_counts"
        " output_counts; f32: repetition_penalty presence_penalty frequency_penalty bias;"
        " u32: mask token_mask; u8: state sampling"
    ),
    "sample_processed": _types(
        "i32: rows lane slot query_length token_counts output_counts tokens top_tokens;"
        " u32: token_mask grammar_mask; f32: logits logprobs top_logprobs; u8: state sampling"
    ),
    "count_sampled": _types(
        "i32: rows slot generation sampled tokens token_counts output_counts; u8: state sampling"
    ),
    "score_ranked": _types("i32: rows target wanted rank top_tokens; f32: logits out top_logprobs"),
    "rope_and_cache_bf16": _types(f"{_PAIR_HEADS} inverse_frequency q_norm k_norm"),
    "attention_bf16": _types(f"{_PAIR_HEADS}; {FORMAT}: out"),
    "rope_and_cache_f16": _types(f"{_HEADS} inverse_frequency q_norm k_norm; f16: queries"),
    "attention_f16": _types(
        "i32: rows positions slot lanes query_length page_table; f16: queries k_plane v_plane;"
        f" {FORMAT}: out"
    ),
    "select_attending": _types(
        "i32: rows query_length sample positions slot selected_rows selected_lane out_positions"
        f" out_slot; f32: x out; {DTYPE}: queries out_queries"
    ),
    "weigh": _types(f"i32: rows; f32: x weight squares; {FORMAT}: out"),
    "linear_weighed": _types(f"{_LINEAR} squares"),
    "linear_silu_mul_weighed": _types(f"{_SILU}; f32: squares"),
}
