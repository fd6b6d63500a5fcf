"""SmolLM2-135M as its GGUF file stores it (Q4_1 blocks, Q8_0 head) against transformers' float32
on the dequantised weights: the 32 most likely tokens at 48 positions of a text (tests/data)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from helios.runtime.model_runtime import ModelRuntime
from ignition.preparation.paged_text import Extents
from tests.model_parts import ModelParts, capture
from tests.replaying import log_softmax, prefill_logits
from tests.smollm2 import require_gguf

DATA = Path(__file__).parent.parent / "data"
POSITIONS = 48
EXTENTS = Extents(8, (32,), (1, 8), 256)


@pytest.fixture(scope="module")
def parts() -> ModelParts:
    return capture(require_gguf(), extents=EXTENTS)


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    with np.load(DATA / "smollm2.npz") as file:
        return dict(file)


def logprobs_of_recorded(
    runtime: ModelRuntime, recorded: dict[str, np.ndarray], positions: int
) -> np.ndarray:
    """Log-probabilities of the recorded tokens at the first recorded positions, `f64 [n, 32]`."""
    places = recorded["positions"][:positions]
    logits = prefill_logits(runtime, recorded["tokens"][: places[-1] + 1].tolist(), lanes=8)
    found = log_softmax(logits[places])
    result: np.ndarray = np.take_along_axis(found, recorded["top_tokens"][:positions], axis=1)
    return result


@pytest.fixture(scope="module")
def on_cpu(parts: ModelParts, recorded: dict[str, np.ndarray]) -> Iterator[np.ndarray]:
    runtime = parts.load("cpu", threads=2, cache_tokens=256)
    yield logprobs_of_recorded(runtime, recorded, POSITIONS)
    runtime.close()


def test_reference_agrees_to_float32(parts: ModelParts, recorded: dict[str, np.ndarray]) -> None:
    runtime = parts.load("reference", cache_tokens=256)
    found = logprobs_of_recorded(runtime, recorded, POSITIONS // 4)
    runtime.close()
    np.testing.assert_allclose(found, recorded["top_logprobs"][: POSITIONS // 4], atol=2e-3)


def test_cpu_keeps_the_distribution(on_cpu: np.ndarray, recorded: dict[str, np.ndarray]) -> None:
    """The divergence over the recorded tokens; the tail beyond them adds little and is left out
    on both sides. The whole distribution over 2,000 tokens is measured in tests/parity."""
    expected = recorded["top_logprobs"].astype(np.float64)
    divergence = (np.exp(expected) * (expected - on_cpu)).sum(axis=1)
    assert divergence.mean() <= 4e-3
    assert np.sqrt(np.mean((on_cpu - expected) ** 2)) <= 0.15


def test_cpu_agrees_on_clear_tokens(on_cpu: np.ndarray, recorded: dict[str, np.ndarray]) -> None:
    """Where the best token leads by half a nat, it is the best here too."""
    expected = recorded["top_logprobs"]
    clear = expected[:, 0] - expected[:, 1] >= 0.5
    assert clear.sum() >= 20
    assert (on_cpu[clear].argmax(axis=1) == 0).all()
