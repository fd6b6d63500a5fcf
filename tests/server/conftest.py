"""Fixtures over a real core: prepared once a test process, from a tiny random checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helios.cli_values import read_public_key
from helios.core.trust import TrustedPublisher, TrustStore
from ignition.preparation import signing
from ignition.preparation.prepare import Options, prepare
from tests.checkpoints import write_huggingface
from tests.server.real import NAMESPACE, ServerProcess, server_process


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
    path = tmp_path_factory.mktemp("keys") / "publisher.key"
    public = read_public_key(signing.generate(path))
    TrustStore().add(TrustedPublisher(NAMESPACE, public))
    return path


@pytest.fixture(scope="session")
def core_folder(tmp_path_factory: pytest.TempPathFactory, publisher_key: Path) -> Path:
    """A core with context 512 and eight slots."""
    folder = tmp_path_factory.mktemp("cores")
    checkpoint = write_huggingface(folder / "checkpoint", "llama")
    options = Options(
        namespace=NAMESPACE,
        served_id="tiny",
        aliases=("little",),
        max_active=8,
        prefill=(32, 128),
        decode=(1, 4, 8),
    )
    key = signing.read_private_key(publisher_key)
    prepare(checkpoint, folder / "core", options, key, _Silent())
    return folder / "core"


@pytest.fixture(scope="session")
def real_server(core_folder: Path) -> Iterator[ServerProcess]:
    """A server that all tests of a process share; none of them may end it."""
    with server_process(core_folder, "--threads", "1") as server:
        yield server
