"""One second through the whole line: a checkpoint becomes a core, the core answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.engine import Engine
from helios.frontend.prepare import GenerationOptions
from ignition.preparation.prepare import Options, prepare
from tests.checkpoints import write_huggingface
from tests.silence import Silent


@pytest.mark.smoke
def test_a_checkpoint_becomes_a_core_that_answers(tmp_path: Path) -> None:
    checkpoint = write_huggingface(tmp_path / "checkpoint", "llama")
    options = Options(
        namespace="smoke", served_id="tiny", max_active=2, prefill=(8,), decode=(2,), max_context=64
    )
    prepare(checkpoint, tmp_path / "core", options, Ed25519PrivateKey.generate(), Silent())
    brief = GenerationOptions(max_tokens=6, temperature=0.0)
    with Engine.open(
        tmp_path / "core", accept="smoke", allow_unknown_publisher=True, threads=1
    ) as engine:
        alone = engine.generate(["the sea"], brief)[0]
        together = engine.generate(["the sea", "a ship and its long wake"], brief)
    assert len(alone.tokens) == 6
    assert together[0].tokens == alone.tokens
    assert together[0].logprobs == alone.logprobs
