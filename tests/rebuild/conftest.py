"""One checkpoint, and its core in both carriers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ignition.preparation.export import Carrier
from ignition.preparation.prepare import Options, prepare
from ignition.preparation.quantisation import WeightStorage
from tests.checkpoints import write_huggingface
from tests.rebuild.altered import KEY
from tests.silence import Silent

OPTIONS = Options(
    namespace="tests",
    served_id="tiny",
    aliases=("small", "smaller"),
    licence_terms="none",
    storage=WeightStorage.INT8,
    max_active=2,
    prefill=(8, 16),
    decode=(1, 2),
    max_context=96,
)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder."""
    return write_huggingface(tmp_path_factory.mktemp("rebuild") / "checkpoint", "llama")


@pytest.fixture(scope="session")
def cores(checkpoint: Path) -> dict[Carrier, Path]:
    """The folders of its cores."""
    folders = {carrier: checkpoint.parent / carrier.value for carrier in Carrier}
    for carrier, folder in folders.items():
        prepare(checkpoint, folder, replace(OPTIONS, carrier=carrier), KEY, Silent())
    return folders


@pytest.fixture(scope="session")
def core(cores: dict[Carrier, Path]) -> Path:
    """The payload core."""
    return cores[Carrier.PAYLOAD]
