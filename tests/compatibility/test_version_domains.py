"""Carrier, contract and execution ABI each have versions of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from helios.core import OpenedCore, open_core
from helios.core import format as core_format
from helios.errors import ContractError, CoreError
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.oracle import greedy_replay
from helios.schema import core_pb2, execution_pb2
from tests.compatibility.stored import StoredCore
from tests.core.logical_core import CORE_KEY, frames_index, sealed_index, write_index
from tests.core.sample_core import PUBLIC_KEY, compress, content_names, frame_resource, sign

CARRIERS = ("payload 2", "index 6", "index 4")
Carried = core_pb2.CoreBody | core_pb2.ProtectedIndex
_MANIFEST = "manifest.cpu"


def write_carried(
    folder: Path, carrier: str, manifest: bytes, change: Callable[[Carried], object]
) -> Path:
    """The stored payload core's content in a carrier, with another manifest; `change` alters the
    message before it is signed."""
    stored = StoredCore("payload-2")
    envelope = core_pb2.SignedEnvelope.FromString((stored.folder / "core.pb").read_bytes())
    body = core_pb2.CoreBody.FromString(envelope.body)
    core = stored.open()
    contents = {r.id: core.read_resource(r.id, r.kind) for r in core.decoded.executables.values()}
    contents["weights.cpu"] = bytes(core.map_weights("weights.cpu").content)
    contents[_MANIFEST] = manifest
    if carrier == "index 4":
        index, files = sealed_index(body, contents)
        change(index)
        return write_index(folder, index, files)
    files = {"weights.cpu": contents["weights.cpu"]}
    for resource in body.executable_resources:
        content = contents[resource.id]
        files[resource.id] = compress(content)
        described = frame_resource(resource.id, resource.kind, content, files[resource.id])
        resource.CopyFrom(described)
    if carrier == "index 6":
        index = frames_index(body)
        change(index)
        return write_index(folder, index, files)
    change(body)
    (folder / core_format.RESOURCE_FOLDER).mkdir(parents=True)
    for name, file in content_names(body).items():
        (folder / core_format.RESOURCE_FOLDER / file).write_bytes(files[name])
    (folder / core_format.ENVELOPE_FILE).write_bytes(sign(body).SerializeToString())
    return folder


def reopen(folder: Path) -> OpenedCore:
    return open_core(folder, accept="tests", publisher_key=PUBLIC_KEY, core_key=CORE_KEY)


def stored_manifest() -> execution_pb2.ExecutionManifest:
    core = StoredCore("payload-2").open()
    kind = core.decoded.executables[_MANIFEST].kind
    return execution_pb2.ExecutionManifest.FromString(core.read_resource(_MANIFEST, kind))


def unchanged(_: Carried) -> None:
    return None


@pytest.mark.clause("CORE-10", "CORE-11")
@pytest.mark.parametrize("label", ["", "helios.cpu/9999", "somebody else's"])
@pytest.mark.parametrize("carrier", CARRIERS)
def test_an_abi_label_does_not_gate_loading(tmp_path: Path, carrier: str, label: str) -> None:
    manifest = stored_manifest()
    assert manifest.abi != label
    manifest.abi = label
    folder = write_carried(tmp_path / "core", carrier, manifest.SerializeToString(), unchanged)
    case = StoredCore("payload-2").cases[0]
    runtime = ModelRuntime.load(reopen(folder))
    try:
        replayed = greedy_replay(runtime, case.prompt, len(case.tokens))
    finally:
        runtime.close()
    assert [token.token for token in replayed] == case.tokens


@pytest.mark.clause("CORE-10")
@pytest.mark.parametrize("carrier", CARRIERS)
def test_declared_operations_are_checked_instead(tmp_path: Path, carrier: str) -> None:
    manifest = stored_manifest()
    manifest.kernels[0].name = "a_kernel_of_the_future"
    folder = write_carried(tmp_path / "core", carrier, manifest.SerializeToString(), unchanged)
    with pytest.raises(ContractError, match="a_kernel_of_the_future"):
        ModelRuntime.load(reopen(folder))


@pytest.mark.clause("CORE-10", "CORE-13")
@pytest.mark.parametrize("carrier", CARRIERS)
def test_each_version_is_refused_as_its_own(tmp_path: Path, carrier: str) -> None:
    manifest = stored_manifest().SerializeToString()

    def newer_carrier(message: Carried) -> None:
        if isinstance(message, core_pb2.CoreBody):
            message.format_version = 7
        else:
            message.version = 7

    def newer_contract(message: Carried) -> None:
        payload = isinstance(message, core_pb2.CoreBody)
        deployment = message.deployment if payload else message.model  # type: ignore[union-attr]
        deployment.contract.model.version = 7

    folder = write_carried(tmp_path / "carrier", carrier, manifest, newer_carrier)
    with pytest.raises(CoreError, match=r"(format|index) version 7 is not supported"):
        reopen(folder)
    folder = write_carried(tmp_path / "contract", carrier, manifest, newer_contract)
    with pytest.raises(ContractError, match=r"model\.version: version 7"):
        reopen(folder)
