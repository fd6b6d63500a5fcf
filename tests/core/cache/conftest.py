"""A core that has nothing but what a mirror gives, and a place for a cache."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core.mirror_server import MirrorServer, serving
from tests.core.sample_core import write_core
from tests.core.test_mirrors import BY_NAME, locate, url


@pytest.fixture
def server() -> Iterator[MirrorServer]:
    """A mirror that has all resources."""
    with serving(BY_NAME) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path, server: MirrorServer) -> Path:
    """A core whose weights are on the mirror alone."""
    folder = write_core(tmp_path / "core")
    shutil.rmtree(folder / "resources")
    locate(folder, "weights", url(server, "good", "weights"))
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """The cache's folder, which isn't there yet."""
    return tmp_path / "cache"
