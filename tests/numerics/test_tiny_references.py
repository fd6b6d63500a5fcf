"""Logits of tiny random models against what transformers computed in float32 (tests/data).

The weights are stored in bf16, which holds them exactly; what differs is the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from helios.runtime.model_runtime import ModelRuntime
from tests.checkpoints import VARIANTS
from tests.model_parts import ModelParts, capture_tiny
from tests.replaying import BF16_LIMITS, decode_logits, prefill_logits, relative_error

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(scope="module", params=list(VARIANTS))
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def parts(variant: str, tmp_path_factory: pytest.TempPathFactory) -> ModelParts:
    return capture_tiny(tmp_path_factory.mktemp("checkpoints"), variant)


@pytest.fixture(scope="module")
def cpu(parts: ModelParts) -> Iterator[ModelRuntime]:
    runtime = parts.load("cpu", cache_tokens=512)
    yield runtime
    runtime.close()


@pytest.fixture(scope="module")
def recorded(variant: str) -> dict[str, np.ndarray]:
    with np.load(DATA / f"tiny_{variant}.npz") as file:
        return dict(file)


def test_prefill_in_chunks_of_one_token(
    cpu: ModelRuntime, variant: str, recorded: dict[str, np.ndarray]
) -> None:
    got = prefill_logits(cpu, recorded["tokens"].tolist())[recorded["positions"]]
    assert relative_error(got, recorded["logits"]) <= BF16_LIMITS[variant]


def test_prefill_of_the_whole_text(
    cpu: ModelRuntime, variant: str, recorded: dict[str, np.ndarray]
) -> None:
    chosen = slice(5, None, 5)
    texts = [recorded["tokens"][: end + 1].tolist() for end in recorded["positions"][chosen]]
    got = np.concatenate([decode_logits(cpu, text, 0)[1] for text in texts])
    assert relative_error(got, recorded["logits"][chosen]) <= BF16_LIMITS[variant]


def test_reference_computes_the_same_in_float32(
    parts: ModelParts, recorded: dict[str, np.ndarray]
) -> None:
    runtime = parts.load("reference", cache_tokens=512)
    got = prefill_logits(runtime, recorded["tokens"].tolist(), lanes=8)[recorded["positions"]]
    assert relative_error(got, recorded["logits"]) <= 1e-5
    runtime.close()


def test_decode_computes_what_prefill_does(
    cpu: ModelRuntime, recorded: dict[str, np.ndarray]
) -> None:
    """Bit for bit: a row's sums don't depend on the program it runs in."""
    prompt = recorded["tokens"][:30].tolist()
    output, decoded = decode_logits(cpu, prompt, 40)
    prefilled = prefill_logits(cpu, prompt + output[:-1])
    np.testing.assert_array_equal(decoded, prefilled[len(prompt) - 1 :])
    # A checkpoint may pad its embedding: rows past the tokenizer's ids are never sampled.
    sampled = cpu.geometry.vocabulary_tokens
    assert [int(row[:sampled].argmax()) for row in decoded] == output


def test_lanes_that_share_pages_compute_what_one_lane_does(
    cpu: ModelRuntime, recorded: dict[str, np.ndarray]
) -> None:
    tokens = recorded["tokens"].tolist()
    np.testing.assert_array_equal(
        prefill_logits(cpu, tokens, lanes=32), prefill_logits(cpu, tokens)
    )
