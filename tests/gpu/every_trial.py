"""Every trial by its name, made from random numbers that the name decides."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from tests.gpu import (
    attention_trials,
    grouped_trials,
    layer_trials,
    model_trials,
    request_trials,
    rotated_trials,
    sampling_trials,
    scaled_trials,
)
from tests.gpu.trials import Build, Trial

EVERY_TRIAL: Final[Mapping[str, Build]] = MappingProxyType(
    {
        **model_trials.trials(),
        **grouped_trials.trials(),
        **scaled_trials.trials(),
        **rotated_trials.trials(),
        **attention_trials.trials(),
        **layer_trials.trials(),
        **request_trials.trials(),
        **sampling_trials.trials(),
    }
)


def make(name: str) -> Trial:
    """The trial; the same one whenever and wherever it is made."""
    return EVERY_TRIAL[name](np.random.default_rng(zlib.crc32(name.encode())))
