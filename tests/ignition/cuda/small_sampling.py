"""Lowerings of sampling for a GPU so small, with blocks so small, that a vocabulary of hundreds has
many of each and a program has several rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ignition.kernels.cuda.launches import CatalogueLaunch, CudaKernel
from ignition.kernels.cuda.lowerings import sampling

_BLOCKS: Final = sampling.Blocks(chunk=128, chunks=32, row=256, words=4, listed=16)
_PROCESSORS: Final = 3


def _small(
    lowering: Callable[[CatalogueLaunch, sampling.Blocks], Sequence[CudaKernel]],
) -> Callable[[CatalogueLaunch], Sequence[CudaKernel]]:
    def lower(launch: CatalogueLaunch) -> Sequence[CudaKernel]:
        architecture = replace(launch.architecture, processors=_PROCESSORS)
        return lowering(replace(launch, architecture=architecture), _BLOCKS)

    return lower


sample = _small(sampling.sample)
sample_processed = _small(sampling.sample_processed)
score = _small(sampling.score)
score_ranked = _small(sampling.score_ranked)
