"""Which CUDA launches each catalogue kernel becomes, by its name.

Adds names alone; what a lowering decides is in the module that it comes from. Importing this
package imports Triton (extra `cuda-prepare`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ignition.kernels.cuda.launches import Lowering
from ignition.kernels.cuda.lowerings import model, projections, requests

LOWERINGS: Final[Mapping[str, Lowering]] = MappingProxyType(
    {
        "attention_f16": model.attention_f16,
        "embed": model.embed,
        "linear": projections.linear,
        "linear_silu_mul": projections.linear_silu_mul,
        "rms_norm": model.rms_norm,
        "rope_and_cache_f16": model.rope_and_cache_f16,
        "scatter_i32": requests.scatter_i32,
    }
)
