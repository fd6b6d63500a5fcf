"""Which CUDA launches each catalogue kernel becomes, by its name.

Adds names alone; what a lowering decides is in the module that it comes from. Importing this
package imports Triton (extra `cuda-prepare`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ignition.kernels.cuda.launches import Lowering
from ignition.kernels.cuda.lowerings import requests

LOWERINGS: Final[Mapping[str, Lowering]] = MappingProxyType(
    {
        "scatter_i32": requests.scatter_i32,
    }
)
