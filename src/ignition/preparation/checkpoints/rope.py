"""Rotary frequencies of a model, with the scalings that checkpoints ask for."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ignition.preparation.checkpoints.checkpoint import (
    LinearRopeScaling,
    Llama3RopeScaling,
    ModelParameters,
)


def inverse_frequencies(parameters: ModelParameters) -> NDArray[np.float32]:
    """Radians a position for each rotated pair: `f32 [head_dim / 2]`, computed in float64."""
    dimension = parameters.head_dim
    exponents = np.arange(0, dimension, 2, dtype=np.float64) / dimension
    frequencies = parameters.rope_theta**-exponents
    scaling = parameters.rope_scaling
    if scaling is None:
        pass
    elif isinstance(scaling, LinearRopeScaling):
        frequencies /= scaling.factor
    elif isinstance(scaling, Llama3RopeScaling):
        frequencies = _llama3(frequencies, scaling)
    else:
        frequencies /= np.asarray(scaling.divisors)
    return frequencies.astype(np.float32)


def _llama3(frequencies: NDArray[np.float64], scaling: Llama3RopeScaling) -> NDArray[np.float64]:
    # How many turns a frequency makes over the original context decides: few turns are slowed
    # down by the factor, many are kept, and between the two bounds the share runs linearly.
    turns = scaling.original_context_tokens * frequencies / (2 * math.pi)
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    kept = ((turns - low) / (high - low)).clip(0, 1)
    return kept * frequencies + (1 - kept) * frequencies / scaling.factor
