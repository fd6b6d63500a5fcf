"""What loading says of the memory that it takes, on the GPU and of the host's that is pinned.

`CudaDevice` calls it: before anything is taken for what follows from the plan, to the byte, and for
what only the driver knows once programs are loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from helios.runtime.devices.cuda.arenas import Layout
from helios.runtime.devices.cuda.gpu import Gpu
from helios.wording import show_size

_log = logging.getLogger(__name__)


def say_planned(gpu: Gpu, layout: Layout, frames_nbytes: int, staging_nbytes: int) -> None:
    """What will be taken: the arenas, and pinned host memory for the rounds' frames and, until they
    are on the GPU, for weights."""
    _log.info(
        "GPU memory: %s, in bytes: %s, of %s free on GPU %d (%s); graphs, their tables and modules"
        " come on top",
        show_size(layout.total_nbytes),
        _listed(layout.nbytes),
        show_size(gpu.free_nbytes()),
        gpu.ordinal,
        gpu.name,
    )
    pinned = {"rounds": frames_nbytes, "weights on their way": staging_nbytes}
    _log.info(
        "pinned host memory: %s, in bytes: %s", show_size(sum(pinned.values())), _listed(pinned)
    )


def say_programs(gpu: Gpu, nbytes: int) -> None:
    """What loading programs took of the GPU's memory, as the driver tells it."""
    _log.info(
        "programs: %s of GPU %d for graphs, tables and modules", show_size(nbytes), gpu.ordinal
    )


def _listed(nbytes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size:,}" for name, size in nbytes.items())
