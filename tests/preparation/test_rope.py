"""Rotary frequencies against the formulas, term by term."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ignition.preparation.checkpoints import open_checkpoint
from ignition.preparation.checkpoints.checkpoint import (
    LinearRopeScaling,
    Llama3RopeScaling,
    ModelParameters,
    RopeFrequencyDivisors,
)
from ignition.preparation.checkpoints.rope import inverse_frequencies
from tests.checkpoints import write_huggingface


@pytest.fixture
def plain(tmp_path: Path) -> ModelParameters:
    folder = write_huggingface(tmp_path, "smollm")
    return replace(open_checkpoint(folder).parameters, head_dim=128, rope_theta=500000.0)


def _frequencies(theta: float, dimension: int) -> list[float]:
    return [theta ** (-2 * pair / dimension) for pair in range(dimension // 2)]


def test_plain_frequencies(plain: ModelParameters) -> None:
    found = inverse_frequencies(plain)
    assert found.dtype == np.float32
    assert np.array_equal(found, np.array(_frequencies(500000.0, 128), np.float32))


def test_linear_scaling_divides_all(plain: ModelParameters) -> None:
    found = inverse_frequencies(replace(plain, rope_scaling=LinearRopeScaling(4.0)))
    assert np.array_equal(found, inverse_frequencies(plain) / 4)


def test_divisors_are_taken_one_by_one(plain: ModelParameters) -> None:
    divisors = tuple(float(index + 1) for index in range(64))
    found = inverse_frequencies(replace(plain, rope_scaling=RopeFrequencyDivisors(divisors)))
    expected = np.array(_frequencies(500000.0, 128)) / np.array(divisors)
    assert np.allclose(found, expected, rtol=1e-7)


def test_llama3_scaling_keeps_short_wavelengths_and_slows_long_ones(
    plain: ModelParameters,
) -> None:
    scaling = Llama3RopeScaling(8.0, 1.0, 4.0, 8192)
    found = inverse_frequencies(replace(plain, rope_scaling=scaling))
    kept = slowed = between = 0
    for frequency, ours in zip(_frequencies(500000.0, 128), found, strict=True):
        wavelength = 2 * math.pi / frequency
        if wavelength < 8192 / 4:
            expected = frequency
            kept += 1
        elif wavelength > 8192 / 1:
            expected = frequency / 8
            slowed += 1
        else:
            share = (8192 / wavelength - 1) / (4 - 1)
            expected = (1 - share) * frequency / 8 + share * frequency
            between += 1
        assert ours == pytest.approx(expected, rel=1e-6)
    assert min(kept, slowed, between) > 0
