"""Tiny random models of every variant and storage against transformers in float32, live."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from ignition.preparation.quantisation import WeightStorage
from tests.checkpoints import VARIANTS, write_huggingface
from tests.history.story import Teller, Told
from tests.model_parts import capture
from tests.parity import transformers_model
from tests.replaying import (
    BF16_LIMITS,
    log_softmax,
    mean_divergence,
    prefill_logits,
    relative_error,
)

TOKENS = 200
# q8 keeps seven bits of an activation and a sign; a tiny model has few to average over. What 4-bit
# weights read is q8 everywhere, queries', keys' and values' inputs too. (What these forms may cost
# a real model is held in test_parity_smollm2, as divergence.)
QUANTISED_LIMITS = {WeightStorage.INT8: 3e-2, WeightStorage.INT4: 5e-2}
# Nats, on average; a logit of these models varies by about 3, and BF16_LIMITS is relative to that.
SCORE_LIMITS = {"cpu": 5e-2, "reference": 1e-4}
STORAGES = (WeightStorage.BF16, WeightStorage.INT8, WeightStorage.INT4)


@pytest.mark.parametrize("storage", STORAGES, ids=lambda storage: storage.value)
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_logits(tmp_path: Path, variant: str, storage: WeightStorage) -> None:
    folder = write_huggingface(tmp_path / variant, variant, seed=3)
    parts = capture(folder, storage)
    tokens = np.random.default_rng(4).integers(3, 331, TOKENS).tolist()
    expected = transformers_model.logits(transformers_model.load(folder, parts), tokens)
    runtime = parts.load("cpu", cache_tokens=512)
    got = prefill_logits(runtime, tokens, lanes=32)
    path = runtime.geometry.kernel_path
    runtime.close()
    error, divergence = relative_error(got, expected), mean_divergence(got, expected)
    print(
        f"\n{variant} {storage.value} on {path}: logits relative error {error:.2e},"
        f" mean KL {divergence:.2e}"
    )
    limit = BF16_LIMITS[variant] if storage is WeightStorage.BF16 else QUANTISED_LIMITS[storage]
    assert error <= limit


@pytest.mark.parametrize("target", list(SCORE_LIMITS))
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_scores(tmp_path: Path, variant: str, target: str) -> None:
    """Logprobs of a text's own tokens, in nats."""
    folder = write_huggingface(tmp_path / variant, variant, seed=3)
    parts = capture(folder, WeightStorage.BF16)
    sampled = parts.contract.model.vocabulary.sampled_tokens
    tokens = np.random.default_rng(5).integers(3, 331, TOKENS).tolist()
    logits = transformers_model.logits(transformers_model.load(folder, parts), tokens)
    expected = log_softmax(logits[:, :sampled])[np.arange(TOKENS - 1), tokens[1:]]
    runtime = parts.load(target, cache_tokens=512)
    teller, told = Teller(runtime), Told(0, tuple(range(8)))
    teller.begin(told)
    for start in range(0, TOKENS, 128):
        chunk = tokens[start : start + 128]
        targets = [*tokens[start + 1 : start + 129], -1][: len(chunk)]
        teller.score(told, chunk, targets, sample=False)
    runtime.close()
    errors = np.abs(np.array(told.scores[:-1]) - expected)
    print(
        f"\n{variant} on {target}: scores differ by {errors.mean():.2e}, {errors.max():.2e} at most"
    )
    assert errors.mean() <= SCORE_LIMITS[target]
    assert errors.max() <= 10 * SCORE_LIMITS[target]
