"""SmolLM2-135M in every storage against transformers in float32 on the same stored weights, over
2,000 tokens of running text: logits, and the divergence of the next-token distribution.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import transformers

from ignition.preparation.paged_text import Extents
from ignition.preparation.quantisation import WeightStorage
from tests.model_parts import capture
from tests.parity import transformers_model
from tests.replaying import mean_divergence, prefill_logits, relative_error
from tests.smollm2 import require_gguf

TEXT = Path(__file__).parent.parent / "data" / "running_text.txt"
TOKENS = 2000
EXTENTS = Extents(32, (32,), (1, 32), 2048)
DIVERGENCE_LIMITS = {
    WeightStorage.BF16: 1e-4,
    WeightStorage.INT8: 2e-3,
    WeightStorage.INT4: 2e-3,
    WeightStorage.AS_STORED: 2e-3,
}


@pytest.fixture(scope="module")
def gguf() -> Path:
    return require_gguf()


@pytest.fixture(scope="module")
def tokens(gguf: Path) -> list[int]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    ids = tokenizer(TEXT.read_text(encoding="utf-8"))["input_ids"]
    assert len(ids) >= TOKENS
    return [int(token) for token in ids[:TOKENS]]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("storage", list(DIVERGENCE_LIMITS), ids=lambda storage: storage.value)
def test_distribution(gguf: Path, tokens: list[int], storage: WeightStorage) -> None:
    parts = capture(gguf, storage, EXTENTS)
    model = transformers_model.load(gguf.parent, parts, gguf_file=gguf.name)
    expected = transformers_model.logits(model, tokens)
    del model
    runtime = parts.load("cpu", threads=None, cache_tokens=2048)
    got = prefill_logits(runtime, tokens, lanes=32)
    path = runtime.geometry.kernel_path
    runtime.close()
    error, divergence = relative_error(got, expected), mean_divergence(got, expected)
    agree = float((got.argmax(axis=1) == expected.argmax(axis=1)).mean())
    print(
        f"\nSmolLM2 {storage.value} on {path}: mean KL {divergence:.2e}, logits relative error"
        f" {error:.2e}, same best token {agree:.2%} of {TOKENS}"
    )
    assert divergence <= DIVERGENCE_LIMITS[storage]
    if storage is WeightStorage.BF16:
        assert error <= 1e-2
