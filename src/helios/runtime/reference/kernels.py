"""The table of reference kernels by catalogue name, which the reference device calls through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from helios.runtime.reference import (
    attention,
    normalisation,
    processing,
    projection,
    sampling,
    sampling_rows,
    state,
    transfer,
)

KERNELS: Final[dict[str, Callable[..., None]]] = {
    "scatter_i32": state.scatter_i32,
    "initialize_requests": state.initialize_requests,
    "load_pending": state.load_pending,
    "embed": projection.embed,
    "rms_norm": normalisation.rms_norm,
    "linear": projection.linear,
    "linear_silu_mul": projection.linear_silu_mul,
    "rope_and_cache": attention.rope_and_cache,
    "attention": attention.attention,
    "rope_and_cache_bf16": attention.rope_and_cache_bf16,
    "attention_bf16": attention.attention_bf16,
    "select_last": sampling.select_last,
    "sample": sampling.sample,
    "commit": state.commit,
    "linear_tuned": projection.linear_tuned,
    "linear_silu_mul_tuned": projection.linear_silu_mul_tuned,
    "tune_linear": projection.tune,
    "tune_linear_silu_mul": projection.tune,
    "set_pending": state.set_pending,
    "merge_pending": state.merge_pending,
    "slice_rows": sampling.slice_rows,
    "score": sampling.score,
    "score_ranked": sampling.score_ranked,
    "save_page": transfer.save_page,
    "load_page": transfer.load_page,
    "copy_rows": transfer.copy_rows,
    "initialize_sampling": sampling_rows.initialize_sampling,
    "sample_processed": processing.sample_processed,
    "count_sampled": sampling_rows.count_sampled,
    "rope_and_cache_f16": attention.rope_and_cache_f16,
    "attention_f16": attention.attention_f16,
    "select_attending": sampling.select_attending,
    "weigh": normalisation.weigh,
    "linear_weighed": projection.linear_weighed,
    "linear_silu_mul_weighed": projection.linear_silu_mul_weighed,
}
# The operand that a kernel reads as a matrix of its `packing` attribute.
MATRIX_OPERANDS: Final[dict[str, str]] = {
    "embed": "table",
    "linear": "weight",
    "linear_silu_mul": "weight",
    "linear_tuned": "weight",
    "linear_silu_mul_tuned": "weight",
    "linear_weighed": "weight",
    "linear_silu_mul_weighed": "weight",
    "tune_linear": "weight",
    "tune_linear_silu_mul": "weight",
}
