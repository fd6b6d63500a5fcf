"""Which CUDA launches each catalogue kernel becomes, by its name.

Adds names alone; what a lowering decides is in the module that it comes from. Importing this
package imports Triton (extra `cuda-prepare`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ignition.kernels.cuda.launches import Lowering
from ignition.kernels.cuda.lowerings import requests, sampling

LOWERINGS: Final[Mapping[str, Lowering]] = MappingProxyType(
    {
        "sample": sampling.sample,
        "sample_processed": sampling.sample_processed,
        "scatter_i32": requests.scatter_i32,
        "score": sampling.score,
        "score_ranked": sampling.score_ranked,
    }
)
