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
from tests.replaying import mean_divergence, prefill_logits, relative_error

TOKENS = 200
# bf16 keeps eight bits of an activation, q8 seven and a sign; a tiny model has few to average.
LIMITS = {WeightStorage.BF16: 1e-2, WeightStorage.INT8: 3e-2, WeightStorage.INT4: 3e-2}


@pytest.mark.parametrize("storage", list(LIMITS), ids=lambda storage: storage.value)
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
    assert error <= LIMITS[storage]
