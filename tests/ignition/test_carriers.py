"""One checkpoint in both carriers: other envelopes, the same files, contract and answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from helios.core import OpenedCore, ResourceKind, open_core
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.oracle import check_oracle
from helios.schema import core_pb2
from ignition.cli import app
from ignition.preparation import signing
from ignition.preparation.export import Carrier
from ignition.preparation.prepare import Options, prepare
from tests.core.logical_core import CORE_KEY, sealed_index, write_index
from tests.core.sample_core import KEY, PUBLIC_KEY
from tests.replaying import decode_logits
from tests.silence import Silent

Folder = Callable[[str], Path]
OPTIONS = Options(
    namespace="tests",
    served_id="tiny",
    max_active=2,
    prefill=(8, 32),
    decode=(1, 2),
    max_context=96,
)
PROMPT = list(range(20, 45))


Cores = Callable[[], dict[str, OpenedCore]]


@pytest.fixture(scope="module")
def cores(checkpoint_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Cores:
    """Makes the cores when they are first asked for."""
    return cache(lambda: make_cores(checkpoint_folder, tmp_path_factory.mktemp("carriers")))


def make_cores(checkpoint_folder: Folder, folder: Path) -> dict[str, OpenedCore]:
    """The payload core, its content in index 6 by Ignition, and in index 4 by the tests' writer."""
    for carrier in Carrier:
        options = replace(OPTIONS, carrier=carrier)
        prepare(checkpoint_folder("qwen3"), folder / carrier, options, KEY, Silent())
    payload = opened(folder / Carrier.PAYLOAD)
    write_index(
        folder / "sealed", *sealed_index(body_of(folder / Carrier.PAYLOAD), decoded(payload))
    )
    return {
        "payload": payload,
        "index 6": opened(folder / Carrier.LOGICAL),
        "index 4": opened(folder / "sealed"),
    }


def opened(folder: Path) -> OpenedCore:
    return open_core(folder, accept="tests", publisher_key=PUBLIC_KEY, core_key=CORE_KEY)


def envelope_of(folder: Path) -> core_pb2.SignedEnvelope:
    return core_pb2.SignedEnvelope.FromString((folder / "core.pb").read_bytes())


def body_of(folder: Path) -> core_pb2.CoreBody:
    return core_pb2.CoreBody.FromString(envelope_of(folder).body)


def decoded(core: OpenedCore) -> dict[str, bytes]:
    """Every resource's content by id."""
    contents = {r.id: core.read_resource(r.id, r.kind) for r in core.decoded.executables.values()}
    for name in core.decoded.weights:
        mapped = core.map_weights(name)
        contents[name] = bytes(mapped.content)
        mapped.close()
    return contents


def answers(core: OpenedCore, target: str) -> tuple[list[int], bytes]:
    """Tokens and the logits' bytes of a greedy generation; every case of the oracle holds."""
    runtime = ModelRuntime.load(core, target=target)
    try:
        oracle = core.read_resource(core.decoded.oracle_resource, ResourceKind.ORACLE)
        check_oracle(runtime, core_pb2.Oracle.FromString(oracle))
        tokens, logits = decode_logits(runtime, PROMPT, 6)
        return tokens, np.ascontiguousarray(logits).tobytes()
    finally:
        runtime.close()


@pytest.mark.clause("CORE-1", "CORE-2")
def test_the_carriers_hold_the_contract_where_they_should(cores: Cores) -> None:
    payload = envelope_of(cores()["payload"].folder)
    logical = envelope_of(cores()["index 6"].folder)
    assert payload.index == logical.body == b""
    body = core_pb2.CoreBody.FromString(payload.body)
    index = core_pb2.ProtectedIndex.FromString(logical.index)
    assert (body.format_version, index.version) == (2, 6)
    assert body.deployment.contract == index.model.contract
    assert body.deployment.contract.model.version == 3


@pytest.mark.clause("CORE-7")
def test_index_6_has_the_payload_cores_files(cores: Cores) -> None:
    payload, logical = cores()["payload"].folder, cores()["index 6"].folder

    def files(folder: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (folder / "resources").iterdir()}

    assert files(logical) == files(payload)
    assert (logical / "locations.pb").read_bytes() == (payload / "locations.pb").read_bytes()


@pytest.mark.clause("CORE-1", "CORE-2", "CORE-7")
@pytest.mark.parametrize("carrier", ["index 6", "index 4"])
def test_every_carrier_gives_the_same_contract_and_content(cores: Cores, carrier: str) -> None:
    payload, core = cores()["payload"], cores()[carrier]
    assert core.contract == payload.contract
    assert core.targets == payload.targets
    assert core.deployment.rebuild == payload.deployment.rebuild
    assert decoded(core) == decoded(payload)
    assert core.digest != payload.digest


@pytest.mark.clause("CORE-2")
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_every_carrier_gives_the_same_answers(cores: Cores, target: str) -> None:
    expected = answers(cores()["payload"], target)
    for carrier in ("index 6", "index 4"):
        assert answers(cores()[carrier], target) == expected


def test_the_carrier_is_an_option(checkpoint_folder: Folder, tmp_path: Path) -> None:
    signing.generate(tmp_path / "key")
    arguments = ["prepare", str(checkpoint_folder("llama")), str(tmp_path / "core")]
    arguments += ["--key", str(tmp_path / "key"), "--namespace", "tests", "--carrier", "logical"]
    arguments += ["--max-active", "1", "--prefill", "8", "--max-context", "64"]
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == 0, ended.output
    assert envelope_of(tmp_path / "core").index
    refused = CliRunner().invoke(app, [*arguments, "--carrier", "sealed"])
    assert refused.exit_code == 2
    assert "--carrier" in refused.output


def test_both_carriers_verify_under_the_same_key() -> None:
    key = Ed25519PrivateKey.generate()
    body, index = signing.sign(b"content", key), signing.sign_index(b"content", key)
    assert body.signature != index.signature
    assert body.public_key == index.public_key
