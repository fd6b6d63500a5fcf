"""Logical-resource cores: both index versions open to what a payload core holds, others don't."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from helios.core import OpenedCore, ResourceKind, open_core
from helios.core import format as core_format
from helios.core.weights import map_memory
from helios.errors import ContractError, CoreError
from helios.schema import core_pb2 as pb
from tests.core.logical_core import (
    CORE_KEY,
    index_names,
    sample_index,
    sign_index,
    write_index,
)
from tests.core.sample_core import (
    CONTENT,
    KEY,
    NAMESPACE,
    PUBLIC_KEY,
    WEIGHTS,
    sample_body,
    sign,
    write_core,
)

VERSIONS = (6, 4)


@pytest.fixture(scope="module")
def cores(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """A core of each version, not to be changed."""
    folder = tmp_path_factory.mktemp("logical")
    return {v: write_index(folder / str(v), *sample_index(v)) for v in VERSIONS}


def reopen(folder: Path) -> OpenedCore:
    return open_core(folder, accept=NAMESPACE, publisher_key=PUBLIC_KEY, core_key=CORE_KEY)


def changed(folder: Path, version: int, change: Callable[[pb.ProtectedIndex], object]) -> Path:
    """A core whose index `change` has altered before signing."""
    index, files = sample_index(version)
    change(index)
    return write_index(folder / "core", index, files)


@pytest.mark.clause("CORE-2", "CORE-7")
@pytest.mark.parametrize("version", VERSIONS)
def test_an_index_opens_to_what_a_payload_core_holds(
    tmp_path: Path, cores: dict[int, Path], version: int
) -> None:
    payload = reopen(write_core(tmp_path / "payload"))
    core = reopen(cores[version])
    assert core.contract == payload.contract
    assert core.targets == payload.targets
    assert core.acceptance == payload.acceptance
    assert core.decoded.tokenizer_resource == payload.decoded.tokenizer_resource
    for name, (kind, content) in CONTENT.items():
        assert core.read_resource(name, ResourceKind(kind)) == content
    for verify in (True, False):
        mapped = core.map_weights("weights", verify=verify)
        assert mapped.content.readonly
        assert mapped.content == WEIGHTS
        mapped.close()


@pytest.mark.clause("CORE-13")
@pytest.mark.parametrize("version", [0, 1, 2, 3, 5, 7, 4_000_000_000])
def test_other_index_versions_are_named(tmp_path: Path, version: int) -> None:
    folder = changed(tmp_path, 6, lambda index: setattr(index, "version", version))
    with pytest.raises(CoreError, match=rf"version: index version {version} is not supported.*6"):
        reopen(folder)


@pytest.mark.clause("CORE-9")
@pytest.mark.parametrize("version", VERSIONS)
def test_acceptance_and_publisher_key_hold_for_an_index(
    cores: dict[int, Path], version: int
) -> None:
    with pytest.raises(CoreError, match="published by 'tests/publisher'"):
        open_core(
            cores[version],
            accept=f"{NAMESPACE} ",
            publisher_key=PUBLIC_KEY,
            core_key=CORE_KEY,
        )
    with pytest.raises(CoreError, match="is signed by the key"):
        open_core(cores[version], accept=NAMESPACE, publisher_key=bytes(32), core_key=CORE_KEY)


@pytest.mark.parametrize("bit", range(8))
def test_no_flipped_bit_of_an_index_goes_unnoticed(tmp_path: Path, bit: int) -> None:
    folder = write_index(tmp_path / "core", sample_index(4)[0], {})
    path = folder / core_format.ENVELOPE_FILE
    good = path.read_bytes()
    for position in range(bit, len(good), 8):
        damaged = bytearray(good)
        damaged[position] ^= 1 << bit
        path.write_bytes(damaged)
        with pytest.raises(CoreError, match=r"core\.pb"):
            reopen(folder)


def test_a_signature_counts_for_its_own_carrier_alone(tmp_path: Path) -> None:
    index, files = sample_index(6)
    folder = write_index(tmp_path / "core", index, files)
    path = folder / core_format.ENVELOPE_FILE
    envelope = sign_index(index)
    moved = pb.SignedEnvelope(
        body=envelope.index, public_key=PUBLIC_KEY, signature=envelope.signature
    )
    path.write_bytes(moved.SerializeToString())
    with pytest.raises(CoreError, match="signature doesn't belong"):
        reopen(folder)
    envelope.signature = KEY.sign(core_format.SIGNATURE_DOMAIN + envelope.index)
    path.write_bytes(envelope.SerializeToString())
    with pytest.raises(CoreError, match="signature doesn't belong"):
        reopen(folder)


def test_an_envelope_of_two_carriers_is_refused(tmp_path: Path) -> None:
    index, files = sample_index(6)
    folder = write_index(tmp_path / "core", index, files)
    both = sign(sample_body()[0])
    both.index = index.SerializeToString()
    (folder / core_format.ENVELOPE_FILE).write_bytes(both.SerializeToString())
    with pytest.raises(CoreError, match="holds a body and an index"):
        reopen(folder)


@pytest.mark.clause("CORE-8")
def test_a_sealed_core_needs_its_own_key(cores: dict[int, Path]) -> None:
    with pytest.raises(CoreError, match=r"is sealed.*--core-key FILE"):
        open_core(cores[4], accept=NAMESPACE, publisher_key=PUBLIC_KEY)
    with pytest.raises(CoreError, match="sealed with another core key"):
        open_core(cores[4], accept=NAMESPACE, publisher_key=PUBLIC_KEY, core_key=bytes(32))


def test_a_core_key_opens_other_cores_as_well(cores: dict[int, Path], tmp_path: Path) -> None:
    assert reopen(cores[6]).contract == reopen(write_core(tmp_path / "core")).contract


INDEXES: list[tuple[int, str, Callable[[pb.ProtectedIndex], object]]] = [
    (6, "publisher.namespace: is empty", lambda i: i.publisher.ClearField("namespace")),
    (6, "model.contract: is missing", lambda i: i.model.ClearField("contract")),
    (6, "model.contract: is missing", lambda i: i.ClearField("model")),
    (6, "encrypted: index version 6 has no such", lambda i: i.encrypted.add(id="more")),
    (6, "key_id: index version 6 has no such", lambda i: setattr(i, "key_id", bytes(32))),
    (6, "weights are no executable", lambda i: setattr(i.frames[0], "kind", 6)),
    (6, "same id", lambda i: setattr(i.frames[2], "id", "oracle")),
    (6, "unknown field", lambda i: i.MergeFromString(b"\xc0\x3e\x01")),
    (6, "unknown field", lambda i: i.model.MergeFromString(b"\xc0\x3e\x01")),
    (6, "model.tokenizer_resource: no executable", lambda i: setattr(
        i.model, "tokenizer_resource", "nothing")),
    (4, "frames: index version 4 has no such", lambda i: i.frames.add(id="more")),
    (4, "weights: index version 4 has no such", lambda i: i.weights.add(id="more")),
    (4, "key_id: has 0 bytes, not 32", lambda i: i.ClearField("key_id")),
    (4, "unknown resource kind 0", lambda i: setattr(i.encrypted[0], "kind", 0)),
    (4, "unknown resource kind 7", lambda i: setattr(i.encrypted[0], "kind", 7)),
    (4, "no weight resource 'weights'", lambda i: setattr(i.encrypted[4], "kind", 5)),
    (4, "'oracle' is TOKENIZER", lambda i: setattr(i.encrypted[3], "kind", 2)),
    (4, "decoded length", lambda i: setattr(i.encrypted[0], "decoded_nbytes", 1 << 31)),
    (4, "decoded length 0", lambda i: setattr(i.encrypted[4], "decoded_nbytes", 0)),
    (4, "chunks of 16 bytes", lambda i: setattr(i.encrypted[0], "chunk_nbytes", 16)),
    (4, "2 chunks, where its length makes 1", lambda i: setattr(
        i.encrypted[0], "chunk_count", 2)),
    (4, "0 chunk digests for 1", lambda i: i.encrypted[0].ClearField("chunk_sha256")),
    (4, "no SHA-256", lambda i: i.encrypted[0].chunk_sha256.__setitem__(0, b"short")),
    (4, "nonce prefix of 4 bytes", lambda i: setattr(i.encrypted[0], "nonce_prefix", b"four")),
    (4, "same nonce prefix", lambda i: setattr(
        i.encrypted[0], "nonce_prefix", i.encrypted[1].nonce_prefix)),
    (4, "same id", lambda i: setattr(i.encrypted[2], "id", "oracle")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "match", "change"), INDEXES, ids=[f"{v}-{m}" for v, m, _ in INDEXES]
)
def test_a_signed_index_is_still_checked(
    tmp_path: Path, version: int, match: str, change: Callable[[pb.ProtectedIndex], object]
) -> None:
    folder = changed(tmp_path, version, change)
    with pytest.raises(CoreError, match=match):
        reopen(folder)


@pytest.mark.clause("CORE-10")
def test_the_contracts_version_is_none_of_the_index(tmp_path: Path) -> None:
    folder = changed(tmp_path, 6, lambda i: setattr(i.model.contract.model, "version", 9))
    with pytest.raises(ContractError, match=r"model\.version: version 9"):
        reopen(folder)


@pytest.mark.clause("CORE-12")
@pytest.mark.parametrize("version", VERSIONS)
def test_what_describes_preparation_changes_nothing(
    tmp_path: Path, cores: dict[int, Path], version: int
) -> None:
    def describe(index: pb.ProtectedIndex) -> None:
        index.model.rebuild.version = 99
        index.model.rebuild.MergeFromString(b"\xc0\x3e\x01")
        catalog = index.model.targets[0].ranks[0].weight_catalog
        catalog.views.add(tensor="anything", buffer="nowhere", storage="unheard-of")

    described = reopen(changed(tmp_path, version, describe))
    assert described.contract == reopen(cores[version]).contract
    assert described.decoded == reopen(cores[version]).decoded


@pytest.mark.clause("CORE-7", "CORE-8")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("resource", [*CONTENT, "weights"])
@pytest.mark.parametrize("position", [0, -1])
def test_damaged_files_are_refused_by_name(
    tmp_path: Path, version: int, resource: str, position: int
) -> None:
    index, files = sample_index(version)
    content = bytearray(files[resource])
    content[position] ^= 0x10
    folder = write_index(tmp_path / "core", index, {**files, resource: bytes(content)})
    core = reopen(folder)
    with pytest.raises(CoreError, match=rf"'{resource}'.*chunk \d is not what was signed"):
        load(core, resource)


@pytest.mark.clause("CORE-5", "CORE-8")
@pytest.mark.parametrize("version", VERSIONS)
def test_swapped_files_of_an_index_are_refused(tmp_path: Path, version: int) -> None:
    index, files = sample_index(version)
    names = index_names(index)
    folder = write_index(tmp_path / "core", index, files)
    resources = folder / core_format.RESOURCE_FOLDER
    (resources / names["oracle"]).write_bytes(files["template"])
    (resources / names["template"]).write_bytes(files["oracle"])
    core = reopen(folder)
    for name in ("oracle", "template"):
        with pytest.raises(CoreError, match=f"resource '{name}'"):
            load(core, name)


def load(core: OpenedCore, resource: str) -> None:
    if resource == "weights":
        core.map_weights(resource).close()
    else:
        core.read_resource(resource, ResourceKind(CONTENT[resource][0]))


def test_no_memory_is_taken_for_a_sealed_file_of_another_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, files = sample_index(4)
    folder = write_index(tmp_path / "core", index, {**files, "weights": files["weights"][:-1]})
    core = open_core(folder, accept=NAMESPACE, publisher_key=PUBLIC_KEY, core_key=CORE_KEY)
    taken: list[object] = []
    monkeypatch.setattr("helios.core.opened_core.map_memory", lambda *all_: taken.append(all_))
    with pytest.raises(CoreError, match="bytes, not the signed"):
        core.map_weights("weights")
    assert taken == []


def test_memory_that_cant_be_had_is_an_error_that_names_the_resource() -> None:
    with pytest.raises(CoreError, match=r"'large': takes 4194304\.00 TiB of memory"):
        map_memory("large", 1 << 62, lambda output: None)
