"""One tiny prepared core a test process."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ignition.preparation.prepare import Options, prepare
from tests.checkpoints import write_huggingface
from tests.silence import Silent

PREPARATION = Options(
    namespace="tests",
    served_id="tiny",
    max_active=6,
    prefill=(8, 32),
    decode=(1, 2, 4, 6),
    max_context=256,
)


@pytest.fixture(scope="session")
def tiny_core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a core with random weights."""
    folder = tmp_path_factory.mktemp("engine")
    checkpoint = write_huggingface(folder / "checkpoint", "llama")
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    prepare(checkpoint, folder / "core", PREPARATION, key, Silent())
    return folder / "core"
