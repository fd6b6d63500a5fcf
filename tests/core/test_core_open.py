"""Opening a good core, and refusing every core that isn't what was signed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helios.core import OpenedCore, ResourceKind, open_core
from helios.core import format as core_format
from helios.errors import ContractError, CoreError
from helios.schema import core_pb2 as pb
from tests.core.sample_core import (
    CONTENT,
    NAMESPACE,
    PUBLIC_KEY,
    WEIGHTS,
    content_names,
    sample_body,
    sign,
    write_core,
)

Change = Callable[[pb.CoreBody], object]


@pytest.fixture(scope="module")
def core_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_core(tmp_path_factory.mktemp("core") / "core")


@pytest.fixture
def private_folder(core_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(core_folder, tmp_path / "core"))


def read_all(core: OpenedCore) -> None:
    for name, (kind, content) in CONTENT.items():
        assert core.read_resource(name, ResourceKind(kind)) == content
    mapped = core.map_weights("weights")
    assert mapped.content == WEIGHTS
    mapped.close()


def file_of(folder: Path, resource: str) -> Path:
    return folder / core_format.RESOURCE_FOLDER / content_names(sample_body()[0])[resource]


def flip(path: Path, position: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        value = file.read(1)[0]
        file.seek(position)
        file.write(bytes([value ^ (1 << bit)]))


@pytest.mark.clause("CORE-1", "CORE-3", "CORE-4", "CORE-9")
def test_a_good_core_opens_and_gives_its_content(core_folder: Path) -> None:
    core = open_core(core_folder, accept=NAMESPACE, publisher_key=PUBLIC_KEY)
    read_all(core)
    assert core.contract.served_id == "sample"
    assert core.targets["cpu"].ranks[0].weight_resources == ("weights",)
    assert core.acceptance.licence_terms == "none"
    assert core.acceptance.public_key == PUBLIC_KEY
    assert len(core.digest) == 64
    assert core.decoded.carrier == "payload, format 2"


def test_weights_are_a_read_only_aligned_mapping(core_folder: Path) -> None:
    mapped = open_core(core_folder, accept=NAMESPACE).map_weights("weights", verify=False)
    assert mapped.content.readonly
    assert mapped.content.nbytes == len(WEIGHTS)
    mapped.close()
    mapped.close()


@pytest.mark.clause("CORE-3")
@pytest.mark.parametrize("bit", range(8))
def test_no_flipped_bit_of_the_envelope_goes_unnoticed(private_folder: Path, bit: int) -> None:
    path = private_folder / core_format.ENVELOPE_FILE
    good = path.read_bytes()
    for position in range(bit, len(good), 8):
        damaged = bytearray(good)
        damaged[position] ^= 1 << bit
        path.write_bytes(damaged)
        with pytest.raises(CoreError, match=r"core\.pb"):
            open_core(private_folder, accept=NAMESPACE)


@pytest.mark.clause("CORE-4", "CORE-5")
@pytest.mark.parametrize("resource", list(CONTENT))
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_no_flipped_bit_of_a_frame_goes_unnoticed(
    private_folder: Path, resource: str, data: st.DataObject
) -> None:
    path = file_of(private_folder, resource)
    position = data.draw(st.integers(0, path.stat().st_size - 1))
    bit = data.draw(st.integers(0, 7))
    core = open_core(private_folder, accept=NAMESPACE)
    flip(path, position, bit)
    with pytest.raises(CoreError, match=rf"'{resource}'.*chunk 0"):
        core.read_resource(resource, ResourceKind(CONTENT[resource][0]))
    flip(path, position, bit)


@pytest.mark.parametrize(
    ("position", "chunk"),
    [(0, 0), ((4 << 20) - 1, 0), (4 << 20, 1), (8 << 20, 2), (len(WEIGHTS) - 1, 2)],
)
def test_no_flipped_byte_of_weights_goes_unnoticed(
    private_folder: Path, position: int, chunk: int
) -> None:
    flip(file_of(private_folder, "weights"), position)
    core = open_core(private_folder, accept=NAMESPACE)
    with pytest.raises(CoreError, match=rf"'weights'.*chunk {chunk} is not what was signed"):
        core.map_weights("weights")


@pytest.mark.parametrize("resource", [*CONTENT, "weights"])
@pytest.mark.parametrize("change", ["missing", "truncated", "longer", "empty"])
def test_files_of_another_length_are_refused_by_name(
    private_folder: Path, resource: str, change: str
) -> None:
    path = file_of(private_folder, resource)
    if change == "missing":
        path.unlink()
    elif change == "longer":
        with path.open("ab") as file:
            file.write(b"\0")
    else:
        os.truncate(path, 0 if change == "empty" else path.stat().st_size - 1)
    core = open_core(private_folder, accept=NAMESPACE)
    expected = "no such file" if change == "missing" else "bytes, not the signed"
    with pytest.raises(CoreError, match=rf"resource '{resource}'.*{expected}"):
        _load(core, resource)


def _load(core: OpenedCore, resource: str) -> None:
    if resource == "weights":
        core.map_weights("weights", verify=False)
    else:
        core.read_resource(resource, ResourceKind(CONTENT[resource][0]))


@pytest.mark.clause("CORE-9")
@pytest.mark.parametrize(
    "accept", ["", "tests", "tests/publisher ", "Tests/publisher", "tests/publisher/x"]
)
def test_acceptance_is_exact(core_folder: Path, accept: str) -> None:
    with pytest.raises(CoreError, match="published by 'tests/publisher'"):
        open_core(core_folder, accept=accept)


def test_another_publishers_key_is_refused(core_folder: Path) -> None:
    with pytest.raises(CoreError, match="is signed by the key"):
        open_core(core_folder, accept=NAMESPACE, publisher_key=bytes(32))


@pytest.mark.clause("CORE-13")
@pytest.mark.parametrize("version", [0, 1, 3, 77])
def test_other_format_versions_are_named(tmp_path: Path, version: int) -> None:
    folder = write_core(tmp_path / "core", lambda body: setattr(body, "format_version", version))
    with pytest.raises(CoreError, match=rf"format version {version} is not supported"):
        open_core(folder, accept=NAMESPACE)


@pytest.mark.parametrize("file", ["core.pb", None])
def test_a_missing_envelope_or_folder_is_named(private_folder: Path, file: str | None) -> None:
    target = private_folder / file if file else private_folder / "nowhere"
    target.unlink(missing_ok=True)
    folder = private_folder if file else target
    with pytest.raises(CoreError, match="core.pb: is missing" if file else "nowhere: there is no"):
        open_core(folder, accept=NAMESPACE)


def test_a_name_that_no_folder_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CoreError, match="can't be read: File name too long"):
        open_core(tmp_path / ("x" * 300), accept=NAMESPACE)


def test_an_envelope_that_is_no_file_is_refused_without_blocking(private_folder: Path) -> None:
    path = private_folder / core_format.ENVELOPE_FILE
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CoreError, match="is no regular file"):
        open_core(private_folder, accept=NAMESPACE)


def test_an_oversized_envelope_is_refused_before_it_is_read(private_folder: Path) -> None:
    os.truncate(private_folder / core_format.ENVELOPE_FILE, core_format.ENVELOPE_LIMIT_NBYTES + 1)
    with pytest.raises(CoreError, match="over the limit"):
        open_core(private_folder, accept=NAMESPACE)


def test_a_signature_of_another_domain_is_refused(private_folder: Path) -> None:
    from tests.core.sample_core import KEY

    envelope = sign(sample_body()[0])
    envelope.signature = KEY.sign(envelope.body)
    path = private_folder / core_format.ENVELOPE_FILE
    path.write_bytes(envelope.SerializeToString())
    with pytest.raises(CoreError, match="signature doesn't belong"):
        open_core(private_folder, accept=NAMESPACE)


def _resource(index: int) -> Callable[[pb.CoreBody], pb.ExecutableResource]:
    return lambda body: body.executable_resources[index]


BODIES: list[tuple[str, Change]] = [
    ("publisher.namespace", lambda b: b.publisher.ClearField("namespace")),
    ("257 characters", lambda b: setattr(b.publisher, "namespace", "x" * 257)),
    ("deployment.contract", lambda b: b.deployment.ClearField("contract")),
    ("unknown resource kind 9", lambda b: setattr(_resource(0)(b), "kind", 9)),
    ("unknown resource kind 0", lambda b: setattr(_resource(0)(b), "kind", 0)),
    ("'tokenizer' is ORACLE, not TOKENIZER", lambda b: setattr(_resource(1)(b), "kind", 4)),
    ("same id", lambda b: setattr(_resource(3)(b), "id", "template")),
    ("same id", lambda b: setattr(b.weight_resources[0], "id", "template")),
    ("is empty", lambda b: setattr(_resource(3)(b), "id", "")),
    ("no SHA-256", lambda b: _resource(0)(b).chunk_sha256.__setitem__(0, b"short")),
    ("no SHA-256", lambda b: setattr(_resource(0)(b).stored, "sha256", b"short")),
    ("stored length 0", lambda b: setattr(_resource(0)(b).stored, "nbytes", 0)),
    ("decoded length", lambda b: setattr(_resource(0)(b), "decoded_nbytes", 1 << 40)),
    ("length 0 is out", lambda b: setattr(b.weight_resources[0], "nbytes", 0)),
    ("alignment 64", lambda b: setattr(b.weight_resources[0], "alignment", 64)),
    (
        "no weight resource 'nothing'",
        lambda b: b.deployment.targets[0].ranks[0].weight_resources.append("nothing"),
    ),
    (
        "occurs twice",
        lambda b: b.deployment.targets[0].ranks[0].weight_resources.append("weights"),
    ),
    (
        "'oracle' is ORACLE, not EXECUTION_MANIFEST",
        lambda b: setattr(b.deployment.targets[0].ranks[0], "manifest_resource", "oracle"),
    ),
    (
        "no executable resource 'nothing'",
        lambda b: setattr(b.deployment, "tokenizer_resource", "nothing"),
    ),
    ("no name or no ranks", lambda b: b.deployment.targets[0].ClearField("ranks")),
    ("same name", lambda b: b.deployment.targets.add().CopyFrom(b.deployment.targets[0])),
    ("unknown field", lambda b: b.MergeFromString(b"\xc0\x3e\x01")),
    ("unknown field", lambda b: _resource(0)(b).MergeFromString(b"\xc0\x3e\x01")),
]


@pytest.mark.parametrize(("match", "change"), BODIES, ids=[m for m, _ in BODIES])
def test_a_signed_body_is_still_checked(tmp_path: Path, match: str, change: Change) -> None:
    folder = write_core(tmp_path / "core", change)
    with pytest.raises(CoreError, match=match):
        open_core(folder, accept=NAMESPACE)


CHUNKS: list[tuple[str, Change]] = [
    ("chunks of 4096 bytes", lambda b: setattr(_resource(0)(b), "chunk_nbytes", 4096)),
    ("1 chunk digests for 2 chunks", lambda b: setattr(_resource(0)(b).stored, "nbytes", 5 << 20)),
    ("0 chunk digests for 1", lambda b: _resource(0)(b).ClearField("chunk_sha256")),
    ("2 chunk digests for 1", lambda b: _resource(0)(b).chunk_sha256.append(bytes(32))),
    ("chunks of 4096 bytes", lambda b: setattr(b.weight_resources[0], "chunk_nbytes", 4096)),
    ("2 chunk digests for 3", lambda b: b.weight_resources[0].chunk_sha256.pop()),
]


@pytest.mark.clause("CORE-4")
@pytest.mark.parametrize(("match", "change"), CHUNKS, ids=[m for m, _ in CHUNKS])
def test_chunks_have_4_mib_and_a_commitment_each(
    tmp_path: Path, match: str, change: Change
) -> None:
    folder = write_core(tmp_path / "core", change)
    with pytest.raises(CoreError, match=match):
        open_core(folder, accept=NAMESPACE)


def test_a_contract_in_a_core_is_validated(tmp_path: Path) -> None:
    folder = write_core(
        tmp_path / "core", lambda b: setattr(b.deployment.contract.model, "version", 9)
    )
    with pytest.raises(ContractError, match=r"model\.version: version 9"):
        open_core(folder, accept=NAMESPACE)


def test_a_draft_is_named_and_so_is_what_makes_a_core_of_it(tmp_path: Path) -> None:
    (tmp_path / core_format.DRAFT_FILE).write_bytes(b"")
    with pytest.raises(CoreError, match=r"is a draft, .*`ignition fill`"):
        open_core(tmp_path, accept=NAMESPACE)


@pytest.mark.clause("CORE-12")
def test_rebuild_manifest_and_weight_catalogs_change_nothing(tmp_path: Path) -> None:
    def describe(body: pb.CoreBody) -> None:
        body.deployment.rebuild.version = 99
        body.deployment.rebuild.MergeFromString(b"\xc0\x3e\x01")
        catalog = body.deployment.targets[0].ranks[0].weight_catalog
        catalog.version = 99
        catalog.views.add(tensor="anything", buffer="nowhere", storage="unheard-of")

    plain = open_core(write_core(tmp_path / "plain"), accept=NAMESPACE)
    described = open_core(write_core(tmp_path / "described", describe), accept=NAMESPACE)
    assert described.contract == plain.contract
    assert described.decoded == plain.decoded
    read_all(described)


@pytest.mark.clause("CORE-5")
def test_swapped_files_of_one_core_are_refused(private_folder: Path) -> None:
    one, other = file_of(private_folder, "template"), file_of(private_folder, "oracle")
    one_bytes, other_bytes = one.read_bytes(), other.read_bytes()
    one.write_bytes(other_bytes)
    other.write_bytes(one_bytes)
    core = open_core(private_folder, accept=NAMESPACE)
    for name in ("template", "oracle"):
        with pytest.raises(CoreError, match=f"resource '{name}'"):
            core.read_resource(name, ResourceKind(CONTENT[name][0]))


@pytest.mark.clause("CORE-5")
def test_a_resource_is_not_given_out_as_another_kind(core_folder: Path) -> None:
    core = open_core(core_folder, accept=NAMESPACE)
    with pytest.raises(CoreError, match="'oracle': is ORACLE, not TOKENIZER"):
        core.read_resource("oracle", ResourceKind.TOKENIZER)
    with pytest.raises(CoreError, match="no such executable resource"):
        core.read_resource("weights", ResourceKind.ORACLE)
    with pytest.raises(CoreError, match="no such weight resource"):
        core.map_weights("oracle")


def test_an_unknown_field_beside_what_is_signed_is_refused(private_folder: Path) -> None:
    path = private_folder / core_format.ENVELOPE_FILE
    path.write_bytes(path.read_bytes() + b"\x7a\x01x")
    with pytest.raises(CoreError, match="unknown field, number 15, outside"):
        open_core(private_folder, accept=NAMESPACE)
