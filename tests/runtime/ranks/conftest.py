"""A core with one rank, and the same one written with several."""

from __future__ import annotations

from pathlib import Path

import pytest

from helios.core import OpenedCore
from tests.core.sample_core import KEY
from tests.ranked_cores import write_ranked_core
from tests.runtime.ranks.ranked import (
    WriteCore,
)
from tests.runtime.test_model_runtime import (
    core_with_programs,
)
from tests.runtime.test_native_model import opened


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> OpenedCore:
    return opened(core_with_programs(tmp_path_factory.mktemp("one") / "core"))


@pytest.fixture
def ranked(core: OpenedCore, tmp_path: Path) -> WriteCore:
    """Writes the core with several ranks and opens it."""

    def written(**changes: object) -> OpenedCore:
        return opened(write_ranked_core(core, tmp_path / "ranked", KEY, **changes))  # type: ignore[arg-type]

    return written
