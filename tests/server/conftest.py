"""Fixtures over a real core: prepared once a test process, from a tiny random checkpoint.

Where HELIOS_TESTS_CORE names a folder, its core is taken instead, and its publisher's key file,
`publisher.key` beside it: scripts/gpu-check serves a tiny one on a GPU so, and one of the demo's
geometry, without the tests that are marked `tiny_model`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helios.cli_values import read_public_key
from helios.core.trust import TrustedPublisher, TrustStore
from ignition.preparation import signing
from ignition.preparation.prepare import prepare
from tests.checkpoints import write_huggingface
from tests.server.real import CORE_OPTIONS, ServerProcess, server_process

_GIVEN = os.environ.get("HELIOS_TESTS_CORE")


class _Silent:
    """Progress that nobody watches."""

    @contextlib.contextmanager
    def stage(self, title: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        yield lambda done: None

    def note(self, text: str) -> None:
        return None


@pytest.fixture(scope="session")
def publisher_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private key file, trusted for the tests' namespace; its public key lies beside it."""
    if _GIVEN is None:
        path = tmp_path_factory.mktemp("keys") / "publisher.key"
        public = read_public_key(signing.generate(path))
    else:
        path = Path(_GIVEN).parent / "publisher.key"
        public = read_public_key(path.with_name("publisher.key.pub"))
    TrustStore().add(TrustedPublisher(CORE_OPTIONS.namespace, public))
    return path


@pytest.fixture(scope="session")
def core_folder(tmp_path_factory: pytest.TempPathFactory, publisher_key: Path) -> Path:
    """A core with context 512 and eight slots."""
    if _GIVEN is not None:
        return Path(_GIVEN)
    folder = tmp_path_factory.mktemp("cores")
    checkpoint = write_huggingface(folder / "checkpoint", "llama")
    key = signing.read_private_key(publisher_key)
    prepare(checkpoint, folder / "core", CORE_OPTIONS, key, _Silent())
    return folder / "core"


@pytest.fixture(scope="session")
def real_server(core_folder: Path) -> Iterator[ServerProcess]:
    """A server that all tests of a process share; none of them may end it."""
    with server_process(core_folder, "--threads", "1") as server:
        yield server
