"""The resources that a signed core lists, decoded: what each one's bytes are, never where.

Reads messages whose signature has been verified; a signer can still be wrong or hostile, so every
size, count and digest is checked before anything uses it. `body` is the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from helios.core.format import (
    CHUNK_NBYTES,
    DECODED_LIMIT_NBYTES,
    NONCE_PREFIX_NBYTES,
    SHA256_NBYTES,
    TAG_NBYTES,
    WEIGHT_ALIGNMENT,
    WEIGHT_LIMIT_NBYTES,
    chunk_count,
    frame_content_name,
    sealed_chunk_count,
    weight_content_name,
)
from helios.dataclass import dataclass
from helios.errors import CoreError
from helios.schema import core_pb2


class ResourceKind(IntEnum):
    """What a resource holds. Numbers are the schema's."""

    EXECUTION_MANIFEST = 1
    TOKENIZER = 2
    CHAT_TEMPLATE = 3
    ORACLE = 4
    MODULE = 5
    WEIGHTS = 6


@dataclass(frozen=True, slots=True)
class FrameResource:
    """An executable resource: one zstd frame of `stored_nbytes`, committed in chunks."""

    id: str
    kind: ResourceKind
    stored_nbytes: int
    stored_sha256: bytes
    decoded_nbytes: int
    chunk_sha256: tuple[bytes, ...]

    @property
    def content_name(self) -> str:
        """File name of the content."""
        return frame_content_name(self.stored_sha256)


@dataclass(frozen=True, slots=True)
class WeightResource:
    """Raw bytes, committed in chunks, used in place."""

    id: str
    nbytes: int
    chunk_sha256: tuple[bytes, ...]

    @property
    def stored_nbytes(self) -> int:
        """Bytes of the file."""
        return self.nbytes

    @property
    def content_name(self) -> str:
        """File name of the content."""
        return weight_content_name(self.chunk_sha256)


@dataclass(frozen=True, slots=True)
class SealedResource:
    """AES-GCM chunks, each stored in 4 MiB (the last one in what is left) with its tag.
    `chunk_sha256` commits to the stored chunks."""

    id: str
    kind: ResourceKind
    decoded_nbytes: int
    nonce_prefix: bytes
    chunk_sha256: tuple[bytes, ...]

    @property
    def stored_nbytes(self) -> int:
        """Bytes of the file."""
        return self.decoded_nbytes + TAG_NBYTES * len(self.chunk_sha256)

    @property
    def content_name(self) -> str:
        """File name of the content."""
        return weight_content_name(self.chunk_sha256)


def decode_frame_resource(message: core_pb2.ExecutableResource, where: str) -> FrameResource:
    """Raises CoreError naming the resource."""
    where = _named(message.id, where)
    kind = _kind(message.kind, where)
    if kind is ResourceKind.WEIGHTS:
        raise CoreError("weights are no executable resource", where=where)
    if not 1 <= message.stored.nbytes <= DECODED_LIMIT_NBYTES:
        raise CoreError(f"stored length {message.stored.nbytes} is out of bounds", where=where)
    _check_decoded_nbytes(kind, message.decoded_nbytes, where)
    if len(message.stored.sha256) != SHA256_NBYTES:
        raise CoreError("the stored digest is no SHA-256", where=where)
    _check_chunk_nbytes(message.chunk_nbytes, where)
    return FrameResource(
        id=message.id,
        kind=kind,
        stored_nbytes=message.stored.nbytes,
        stored_sha256=message.stored.sha256,
        decoded_nbytes=message.decoded_nbytes,
        chunk_sha256=_commitments(message.chunk_sha256, chunk_count(message.stored.nbytes), where),
    )


def decode_weight_resource(message: core_pb2.WeightResource, where: str) -> WeightResource:
    """Raises CoreError naming the resource."""
    where = _named(message.id, where)
    if not 1 <= message.nbytes <= WEIGHT_LIMIT_NBYTES:
        raise CoreError(f"length {message.nbytes} is out of bounds", where=where)
    if message.alignment != WEIGHT_ALIGNMENT:
        raise CoreError(f"alignment {message.alignment} is not {WEIGHT_ALIGNMENT}", where=where)
    _check_chunk_nbytes(message.chunk_nbytes, where)
    return WeightResource(
        id=message.id,
        nbytes=message.nbytes,
        chunk_sha256=_commitments(message.chunk_sha256, chunk_count(message.nbytes), where),
    )


def decode_sealed_resource(message: core_pb2.EncryptedResource, where: str) -> SealedResource:
    """Raises CoreError naming the resource."""
    where = _named(message.id, where)
    kind = _kind(message.kind, where)
    _check_decoded_nbytes(kind, message.decoded_nbytes, where)
    _check_chunk_nbytes(message.chunk_nbytes, where)
    count = sealed_chunk_count(message.decoded_nbytes)
    if message.chunk_count != count:
        raise CoreError(
            f"{message.chunk_count} chunks, where its length makes {count}", where=where
        )
    if len(message.nonce_prefix) != NONCE_PREFIX_NBYTES:
        raise CoreError(
            f"a nonce prefix of {len(message.nonce_prefix)} bytes, not {NONCE_PREFIX_NBYTES}",
            where=where,
        )
    return SealedResource(
        id=message.id,
        kind=kind,
        decoded_nbytes=message.decoded_nbytes,
        nonce_prefix=message.nonce_prefix,
        chunk_sha256=_commitments(message.chunk_sha256, count, where),
    )


def _named(resource: str, where: str) -> str:
    if not resource:
        raise CoreError("is empty", where=f"{where}.id")
    return f"resource {resource!r}"


def _kind(number: int, where: str) -> ResourceKind:
    try:
        return ResourceKind(number)
    except ValueError:
        raise CoreError(f"unknown resource kind {number}", where=where) from None


def _check_decoded_nbytes(kind: ResourceKind, nbytes: int, where: str) -> None:
    weights = kind is ResourceKind.WEIGHTS
    least, limit = (1, WEIGHT_LIMIT_NBYTES) if weights else (0, DECODED_LIMIT_NBYTES)
    if not least <= nbytes <= limit:
        raise CoreError(f"decoded length {nbytes} is out of bounds", where=where)


def _check_chunk_nbytes(nbytes: int, where: str) -> None:
    if nbytes != CHUNK_NBYTES:
        raise CoreError(f"chunks of {nbytes} bytes, not {CHUNK_NBYTES}", where=where)


def _commitments(digests: Sequence[bytes], count: int, where: str) -> tuple[bytes, ...]:
    if len(digests) != count:
        raise CoreError(f"{len(digests)} chunk digests for {count} chunks", where=where)
    if any(len(digest) != SHA256_NBYTES for digest in digests):
        raise CoreError("a chunk digest is no SHA-256", where=where)
    return tuple(digests)
