"""Tiny random models of every variant and storage against transformers in float32, live."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from ignition.preparation.quantisation import WeightStorage
from tests.checkpoints import VARIANTS, write_huggingface
from tests.model_parts import capture
from tests.parity import transformers_model
from tests.replaying import BF16_LIMITS, mean_divergence, prefill_logits, relative_error

TOKENS = 200
# q8 keeps seven bits of an activation and a sign; a tiny model has few to average over.
QUANTISED_LIMIT = 3e-2
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
    limit = BF16_LIMITS[variant] if storage is WeightStorage.BF16 else QUANTISED_LIMIT
    assert error <= limit
