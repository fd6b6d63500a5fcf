"""Writes a core: resource files named by content, signed envelope, location set.

Everything goes into a temporary folder beside the destination, which is renamed at the end: a
core is either whole or absent. The bytes follow from the content and the key alone. What a core
holds is `prepare`'s business; both carriers are described in docs/core-format.md.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final

import zstandard
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.message import Message

from helios.core import format as core_format
from helios.errors import CoreError
from helios.schema import core_pb2
from ignition.preparation import signing

# A folder with one of them is ours to replace.
_REPLACEABLE: Final = (core_format.ENVELOPE_FILE, core_format.DRAFT_FILE)


def serialized(message: Message) -> bytes:
    """The message's bytes; maps are in the order of their keys."""
    return message.SerializeToString(deterministic=True)


class Carrier(StrEnum):
    """In which message a core travels. The resource files are the same in both."""

    PAYLOAD = "payload"
    LOGICAL = "logical"


class CoreWriter:
    """A core in the making, inside `folder`. Resource ids are unique."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._resources = folder / core_format.RESOURCE_FOLDER
        self._resources.mkdir()
        self._frames: list[core_pb2.ExecutableResource] = []
        self._weights: list[core_pb2.WeightResource] = []
        self._locations: list[core_pb2.Location] = []

    def add_frame(self, resource: str, kind: core_pb2.ResourceKind, content: bytes) -> None:
        """Stores content as one zstd frame."""
        compressor = zstandard.ZstdCompressor(level=core_format.ZSTD_LEVEL, write_content_size=True)
        stored = compressor.compress(content)
        digest = hashlib.sha256(stored).digest()
        name = core_format.frame_content_name(digest)
        (self._resources / name).write_bytes(stored)
        self._frames.append(
            core_pb2.ExecutableResource(
                id=resource,
                kind=kind,
                stored=core_pb2.StoredFrame(nbytes=len(stored), sha256=digest),
                decoded_nbytes=len(content),
                chunk_nbytes=core_format.CHUNK_NBYTES,
                chunk_sha256=core_format.chunk_digests(stored),
            )
        )
        self._locate(resource, name)

    @property
    def frames(self) -> Sequence[core_pb2.ExecutableResource]:
        """The frames so far."""
        return self._frames

    def adopt_frame(self, resource: core_pb2.ExecutableResource, stored: bytes) -> None:
        """Takes over a frame that was stored elsewhere."""
        name = core_format.frame_content_name(resource.stored.sha256)
        (self._resources / name).write_bytes(stored)
        self._frames.append(resource)
        self._locate(resource.id, name)

    def add_weights(self, resource: str, content: Iterable[bytes | memoryview]) -> Path:
        """Stores the concatenated content raw, padded to the alignment; returns the file's path."""
        path = self._resources / "weights.partial"
        digests = _ChunkDigests()
        with path.open("wb") as file:
            for part in content:
                file.write(part)
                digests.update(part)
            padding = bytes(-digests.nbytes % core_format.WEIGHT_ALIGNMENT)
            file.write(padding)
            digests.update(padding)
        commitments = digests.finish()
        name = core_format.weight_content_name(commitments)
        self._weights.append(
            core_pb2.WeightResource(
                id=resource,
                nbytes=digests.nbytes,
                alignment=core_format.WEIGHT_ALIGNMENT,
                chunk_nbytes=core_format.CHUNK_NBYTES,
                chunk_sha256=commitments,
            )
        )
        self._locate(resource, name)
        return path.rename(self._resources / name)

    def content_digest(self) -> bytes:
        """A digest of all weights and frames so far."""
        commitments = [d for resource in self._weights for d in resource.chunk_sha256]
        commitments += [frame.stored.sha256 for frame in self._frames]
        return hashlib.sha256(b"".join(commitments)).digest()

    def finish(
        self,
        publisher: core_pb2.Publisher,
        deployment: core_pb2.DeploymentBody,
        key: Ed25519PrivateKey,
        carrier: Carrier = Carrier.PAYLOAD,
    ) -> None:
        """Signs and writes the envelope and the location set."""
        if carrier is Carrier.PAYLOAD:
            body = core_pb2.CoreBody(
                format_version=core_format.FORMAT_VERSION,
                publisher=publisher,
                deployment=deployment,
                executable_resources=self._frames,
                weight_resources=self._weights,
            )
            envelope = signing.sign(serialized(body), key)
        else:
            index = core_pb2.ProtectedIndex(
                version=core_format.INDEX_VERSION_FRAMES,
                publisher=publisher,
                model=_model_index(deployment),
                frames=self._frames,
                weights=self._weights,
            )
            envelope = signing.sign_index(serialized(index), key)
        (self._folder / core_format.ENVELOPE_FILE).write_bytes(serialized(envelope))
        locations = core_pb2.LocationSet(locations=self._locations)
        (self._folder / core_format.LOCATIONS_FILE).write_bytes(serialized(locations))

    def _locate(self, resource: str, name: str) -> None:
        uri = core_format.resource_uri(name)
        self._locations.append(core_pb2.Location(resource=resource, uris=[uri]))


def _model_index(deployment: core_pb2.DeploymentBody) -> core_pb2.ModelIndex:
    """The same declarations in a logical-resource core's message."""
    model = core_pb2.ModelIndex(
        contract=deployment.contract,
        tokenizer_resource=deployment.tokenizer_resource,
        template_resource=deployment.template_resource,
        oracle_resource=deployment.oracle_resource,
        targets=deployment.targets,
    )
    if deployment.HasField("rebuild"):
        model.rebuild.CopyFrom(deployment.rebuild)
    return model


class _ChunkDigests:
    """SHA-256 of each chunk of a stream of bytes."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._digests: list[bytes] = []
        self._current = hashlib.sha256()

    def update(self, part: bytes | memoryview) -> None:
        view = memoryview(part).cast("B")
        while len(view):
            room = core_format.CHUNK_NBYTES - self.nbytes % core_format.CHUNK_NBYTES
            piece, view = view[:room], view[room:]
            self._current.update(piece)
            self.nbytes += len(piece)
            if len(piece) == room:
                self._close()

    def finish(self) -> list[bytes]:
        """All digests, that of a last short chunk included."""
        if self.nbytes % core_format.CHUNK_NBYTES:
            self._close()
        return self._digests

    def _close(self) -> None:
        self._digests.append(self._current.digest())
        self._current = hashlib.sha256()


@contextmanager
def new_folder(destination: Path, *, replace: bool) -> Iterator[Path]:
    """A temporary folder that becomes `destination` if the block succeeds and vanishes if not.

    Raises CoreError where `destination` exists, unless it is an empty folder, or a core and
    `replace` is set.
    """
    check_destination(destination, replace=replace)
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        holder = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
    except OSError as error:
        raise CoreError(
            f"the folder can't be made: {error.strerror}", where=str(destination)
        ) from error
    try:
        folder = holder / "new"
        folder.mkdir()
        yield folder
        if destination.exists():
            destination.rename(holder / "old")
        folder.rename(destination)
    finally:
        shutil.rmtree(holder)


def check_destination(destination: Path, *, replace: bool) -> None:
    """Refuses to write over what exists, as `new_folder` says."""
    if not destination.exists() or _is_empty_folder(destination):
        return
    where = str(destination)
    if not replace:
        raise CoreError("exists already", where=where, remedy="--force replaces it")
    if not any((destination / name).is_file() for name in _REPLACEABLE):
        raise CoreError("exists and is no core", where=where, remedy="Choose another folder")


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and next(path.iterdir(), None) is None
