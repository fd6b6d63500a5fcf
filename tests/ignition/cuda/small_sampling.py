"""Lowerings of sampling with blocks so small that a vocabulary of hundreds has many of each."""

from __future__ import annotations

from functools import partial
from typing import Final

from ignition.kernels.cuda.lowerings import sampling

_BLOCKS: Final = sampling.Blocks(chunk=128, chunks=32, row=256, words=4, listed=16)

sample = partial(sampling.sample, blocks=_BLOCKS)
sample_processed = partial(sampling.sample_processed, blocks=_BLOCKS)
score = partial(sampling.score, blocks=_BLOCKS)
score_ranked = partial(sampling.score_ranked, blocks=_BLOCKS)
