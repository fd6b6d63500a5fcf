"""The files of a core: frames, raw weights, signature, and folders that appear whole or not."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import zstandard
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from helios.core.format import CHUNK_NBYTES
from helios.errors import CoreError
from helios.schema import core_pb2
from ignition.preparation import signing
from ignition.preparation.export import CoreWriter, new_folder


def body_of(folder: Path) -> core_pb2.CoreBody:
    envelope = core_pb2.SignedEnvelope.FromString((folder / "core.pb").read_bytes())
    return core_pb2.CoreBody.FromString(envelope.body)


def finish(writer: CoreWriter, key: Ed25519PrivateKey | None = None) -> None:
    publisher = core_pb2.Publisher(namespace="tests", licence_terms="none")
    writer.finish(publisher, core_pb2.DeploymentBody(), key or Ed25519PrivateKey.generate())


def test_a_frame_is_one_zstd_frame_with_its_size(tmp_path: Path) -> None:
    content = b"0123456789" * 5000
    writer = CoreWriter(tmp_path)
    writer.add_frame("text", core_pb2.RESOURCE_KIND_TOKENIZER, content)
    finish(writer)
    (resource,) = body_of(tmp_path).executable_resources
    stored = (tmp_path / "resources" / resource.stored.sha256.hex()).read_bytes()
    assert hashlib.sha256(stored).digest() == resource.stored.sha256
    assert len(stored) == resource.stored.nbytes
    parameters = zstandard.get_frame_parameters(stored)
    assert parameters.content_size == len(content) == resource.decoded_nbytes
    decoder = zstandard.ZstdDecompressor().decompressobj()
    assert decoder.decompress(stored) == content
    assert decoder.unused_data == b""
    assert list(resource.chunk_sha256) == [resource.stored.sha256]
    assert (resource.kind, resource.chunk_nbytes) == (core_pb2.RESOURCE_KIND_TOKENIZER, 4 << 20)


def test_an_empty_frame_commits_to_its_bytes(tmp_path: Path) -> None:
    writer = CoreWriter(tmp_path)
    writer.add_frame("empty", core_pb2.RESOURCE_KIND_ORACLE, b"")
    finish(writer)
    (resource,) = body_of(tmp_path).executable_resources
    assert (resource.decoded_nbytes, len(resource.chunk_sha256)) == (0, 1)


@pytest.mark.parametrize(
    "sizes", [[10], [CHUNK_NBYTES], [CHUNK_NBYTES - 1, 2], [5, 3 * CHUNK_NBYTES + 1, 7]]
)
def test_weights_are_raw_with_a_digest_a_chunk(tmp_path: Path, sizes: list[int]) -> None:
    parts = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    writer = CoreWriter(tmp_path)
    path = writer.add_weights("w", (memoryview(part) for part in parts))
    finish(writer)
    content = path.read_bytes()
    assert content.startswith(b"".join(parts))
    assert len(content) - sum(sizes) < 4096
    assert len(content) % 4096 == 0
    (resource,) = body_of(tmp_path).weight_resources
    chunks = [content[at : at + CHUNK_NBYTES] for at in range(0, len(content), CHUNK_NBYTES)]
    digests = [hashlib.sha256(chunk).digest() for chunk in chunks]
    assert list(resource.chunk_sha256) == digests
    assert (resource.nbytes, resource.alignment) == (len(content), 4096)
    assert path.name == hashlib.sha256(b"".join(digests)).hexdigest()


def test_locations_name_every_resource(tmp_path: Path) -> None:
    writer = CoreWriter(tmp_path)
    writer.add_weights("w", [b"weights"])
    writer.add_frame("f", core_pb2.RESOURCE_KIND_ORACLE, b"frame")
    finish(writer)
    locations = core_pb2.LocationSet.FromString((tmp_path / "locations.pb").read_bytes())
    uris = {location.resource: list(location.uris) for location in locations.locations}
    assert set(uris) == {"w", "f"}
    for (uri,) in uris.values():
        assert uri.startswith("file:resources/")
        assert (tmp_path / uri.removeprefix("file:")).is_file()
    assert len(list((tmp_path / "resources").iterdir())) == 2


def test_the_signature_covers_domain_and_body(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    finish(CoreWriter(tmp_path), key)
    envelope = core_pb2.SignedEnvelope.FromString((tmp_path / "core.pb").read_bytes())
    assert envelope.public_key == key.public_key().public_bytes_raw()
    public = Ed25519PublicKey.from_public_bytes(envelope.public_key)
    public.verify(envelope.signature, b"helios.core.payload\x00" + envelope.body)
    body = body_of(tmp_path)
    assert body.format_version == 2
    assert (body.publisher.namespace, body.publisher.licence_terms) == ("tests", "none")


def test_a_failed_preparation_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with new_folder(tmp_path / "core", replace=False) as folder:
            (folder / "core.pb").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_core_appears_at_once_and_in_missing_parents(tmp_path: Path) -> None:
    destination = tmp_path / "a" / "b" / "core"
    with new_folder(destination, replace=False) as folder:
        (folder / "core.pb").write_text("whole")
        assert not destination.exists()
    assert (destination / "core.pb").read_text() == "whole"
    assert list(destination.parent.iterdir()) == [destination]


def test_replacing_needs_to_be_asked_for_and_takes_cores_only(tmp_path: Path) -> None:
    destination = tmp_path / "core"
    destination.mkdir()
    (destination / "letters").write_text("dear")

    def write(*, replace: bool) -> None:
        with new_folder(destination, replace=replace) as folder:
            (folder / "core.pb").write_text("new")

    with pytest.raises(CoreError, match=r"exists already.*--force"):
        write(replace=False)
    with pytest.raises(CoreError, match="is no core"):
        write(replace=True)
    assert (destination / "letters").read_text() == "dear"
    (destination / "core.pb").write_text("old")
    write(replace=True)
    assert [path.name for path in destination.iterdir()] == ["core.pb"]
    assert (destination / "core.pb").read_text() == "new"
    assert list(tmp_path.iterdir()) == [destination]


def test_replacing_keeps_the_old_core_where_the_new_one_fails(tmp_path: Path) -> None:
    destination = tmp_path / "core"
    destination.mkdir()
    (destination / "core.pb").write_text("old")
    with pytest.raises(RuntimeError), new_folder(destination, replace=True):
        raise RuntimeError
    assert (destination / "core.pb").read_text() == "old"
    assert list(tmp_path.iterdir()) == [destination]


@pytest.fixture
def key_path(tmp_path: Path) -> Path:
    return tmp_path / "publisher.key"


def test_a_generated_key_is_private_and_read_again(key_path: Path) -> None:
    public_path = signing.generate(key_path)
    assert key_path.stat().st_mode & 0o777 == 0o600
    assert public_path == key_path.with_name("publisher.key.pub")
    public = signing.read_private_key(key_path).public_key()
    assert b"PUBLIC KEY" in public_path.read_bytes()
    assert public.public_bytes_raw() == _load_public(public_path.read_bytes())


def _load_public(content: bytes) -> bytes:
    key = serialization.load_pem_public_key(content)
    assert isinstance(key, Ed25519PublicKey)
    return key.public_bytes_raw()


def test_keys_are_never_overwritten(key_path: Path) -> None:
    signing.generate(key_path)
    with pytest.raises(CoreError, match="exists already"):
        signing.generate(key_path)
    key_path.unlink()
    with pytest.raises(CoreError, match="exists already"):
        signing.generate(key_path)
    assert not key_path.exists()


@pytest.mark.parametrize("content", [b"", b"not a key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n"])
def test_files_that_hold_no_key_are_refused(key_path: Path, content: bytes) -> None:
    key_path.write_bytes(content)
    with pytest.raises(CoreError, match="no unencrypted PEM private key") as caught:
        signing.read_private_key(key_path)
    assert str(key_path) in str(caught.value)


def test_other_kinds_of_keys_are_refused(key_path: Path) -> None:
    other = generate_private_key(SECP256R1())
    key_path.write_bytes(
        other.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    with pytest.raises(CoreError, match="another kind of key"):
        signing.read_private_key(key_path)


def test_a_missing_key_is_named(key_path: Path) -> None:
    with pytest.raises(CoreError, match=r"can't be read.*ignition keygen"):
        signing.read_private_key(key_path)
