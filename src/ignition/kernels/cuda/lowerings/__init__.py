"""Which CUDA launches each catalogue kernel becomes, by its name.

Holds names alone; what a lowering decides is in the module that it comes from. Importing this
package imports Triton (extra `cuda-prepare`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ignition.kernels.cuda.launches import Fusion, Lowering
from ignition.kernels.cuda.lowerings import (
    attention,
    fusions,
    model,
    pages,
    projections,
    requests,
    rotated_projection,
    rounds,
    sampling,
    sampling_rows,
    selection,
)

LOWERINGS: Final[Mapping[str, Lowering]] = MappingProxyType(
    {
        "attention_f16": attention.attention_f16,
        "commit": requests.commit,
        "copy_rows": pages.copy_rows,
        "count_sampled": sampling_rows.count_sampled,
        "embed": model.embed,
        "initialize_requests": requests.initialize_requests,
        "initialize_sampling": sampling_rows.initialize_sampling,
        "linear": projections.linear,
        "linear_silu_mul": projections.linear_silu_mul,
        "linear_silu_mul_weighed": projections.linear_silu_mul,
        "linear_weighed": projections.linear,
        "load_page": pages.load_page,
        "load_pending": requests.load_pending,
        "merge_pending": requests.merge_pending,
        "rms_norm": model.rms_norm,
        "rope_and_cache_f16": model.rope_and_cache_f16,
        "sample": sampling.sample,
        "sample_processed": sampling.sample_processed,
        "save_page": pages.save_page,
        "scatter_i32": requests.scatter_i32,
        "score": sampling.score,
        "score_ranked": sampling.score_ranked,
        "select_attending": selection.select_attending,
        "select_last": selection.select_last,
        "set_pending": requests.set_pending,
        "slice_rows": selection.slice_rows,
        "weigh": model.weigh,
    }
)

# What does the work of several consecutive launches; the first that fits is taken.
FUSIONS: Final[tuple[Fusion, ...]] = (
    *fusions.FUSIONS,
    *rotated_projection.FUSIONS,
    *rounds.FUSIONS,
)
