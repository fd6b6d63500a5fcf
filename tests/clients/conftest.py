"""Clients that others wrote, against a real server over a real small model. Marked `clients`, since
they need the extra of that name; `make clients` runs them."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helios.cli_values import read_public_key
from helios.core.trust import TrustedPublisher, TrustStore
from ignition.preparation import signing
from ignition.preparation.prepare import Options, prepare
from tests.checkpoints import write_huggingface
from tests.clients.offline.sitecustomize import only_loopback
from tests.clients.sessions import MODEL
from tests.server.real import NAMESPACE, ServerProcess, server_process
from tests.smollm2 import require_gguf

FOLDER = Path(__file__).parent
KEY = "sk-only-for-tests"
# Classes below `adapters`: their module, and the library that it imports.
ADAPTERS = {
    "OpenAIPython": ("openai_python", "openai"),
    "OpenAINode": ("openai_node", "json"),
    "LangChain": ("langchain", "langchain_openai"),
    "LiteLLM": ("litellm", "litellm"),
    "Llm": ("llm", "llm"),
}
# What libraries are told so that they ask nobody but the server.
SWITCHES = {
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_OFFLINE_MODE": "true",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.clients)


@pytest.fixture(scope="session", autouse=True)
def switches() -> Iterator[None]:
    """Before any library is imported."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SWITCHES.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module", params=list(ADAPTERS))
def client(request: pytest.FixtureRequest) -> Any:
    """A library; skips loudly where it isn't installed."""
    module, library = ADAPTERS[request.param]
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{request.param} is not tested: {library} isn't installed (`make clients`)")
    return getattr(importlib.import_module(f"tests.clients.adapters.{module}"), request.param)()


@pytest.fixture(autouse=True)
def no_network() -> Iterator[None]:
    """A test fails if anything in this process asked for another machine, even if it bore the
    refusal."""
    with only_loopback() as refused:
        yield
    assert not refused


class _Silent:
    """Progress that nobody watches."""

    @contextlib.contextmanager
    def stage(self, title: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        yield lambda done: None

    def note(self, text: str) -> None:
        return None


def _prepared(checkpoint: Path, folder: Path, options: Options) -> Path:
    """A core that this run's trust store knows."""
    key = folder / "publisher.key"
    TrustStore().add(TrustedPublisher(NAMESPACE, read_public_key(signing.generate(key))))
    prepare(checkpoint, folder / "core", options, signing.read_private_key(key), _Silent())
    return folder / "core"


@pytest.fixture(scope="session")
def model_core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2-135M-Instruct."""
    options = Options(namespace=NAMESPACE, served_id=MODEL, licence_terms="Apache-2.0")
    return _prepared(require_gguf(), tmp_path_factory.mktemp("smollm2"), options)


@pytest.fixture(scope="session")
def open_server(model_core: Path) -> Iterator[ServerProcess]:
    """A server that asks for no key."""
    with server_process(model_core) as server:
        yield server


@pytest.fixture(scope="session")
def keyed_server(model_core: Path) -> Iterator[ServerProcess]:
    """A server that asks for `KEY` and has two permits."""
    options = ("--api-key", KEY, "--max-active", "1", "--queue-capacity", "1")
    with server_process(model_core, *options) as server:
        server.http.headers["authorization"] = f"Bearer {KEY}"
        yield server


@pytest.fixture(scope="session")
def tiny_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of a tiny random model, `tiny`, also called `little`, that asks for `KEY`."""
    folder = tmp_path_factory.mktemp("tiny")
    options = Options(
        namespace=NAMESPACE,
        served_id="tiny",
        aliases=("little",),
        max_active=8,
        prefill=(32, 128),
        decode=(1, 4, 8),
    )
    core = _prepared(write_huggingface(folder / "checkpoint", "llama"), folder, options)
    with server_process(core, "--threads", "1", "--api-key", KEY) as server:
        server.http.headers["authorization"] = f"Bearer {KEY}"
        yield server
