"""The signed envelope: reads `core.pb` and verifies its signature before believing any of it.

What was signed is a payload core's message or a logical-resource core's; what it says is checked in
`body`. `opened_core` is the caller.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from helios.core.files import open_regular, read_exactly
from helios.core.format import (
    ENVELOPE_LIMIT_NBYTES,
    INDEX_SIGNATURE_DOMAIN,
    PUBLIC_KEY_NBYTES,
    SIGNATURE_DOMAIN,
    SIGNATURE_NBYTES,
)
from helios.dataclass import dataclass
from helios.errors import CoreError
from helios.schema import core_pb2


@dataclass(frozen=True)
class VerifiedEnvelope:
    """Content that `public_key` signed, a serialized `message`; `digest` is its hex SHA-256."""

    message: type[core_pb2.CoreBody] | type[core_pb2.ProtectedIndex]
    content: bytes
    digest: str
    public_key: bytes
    where: str

    @cached_property
    def head(self) -> core_pb2.CarrierHead:
        """Version and publisher; everything else stays bytes, so whoever signed can't make this
        costly. Raises CoreError."""
        head = core_pb2.CarrierHead()
        self._parse(head)
        return head

    @cached_property
    def body(self) -> core_pb2.CoreBody | core_pb2.ProtectedIndex:
        """The whole. It may take forty times the memory of its bytes, so it is asked for once the
        publisher is trusted. Raises CoreError."""
        body = self.message()
        self._parse(body)
        return body

    def _parse(self, message: Message) -> None:
        try:
            message.ParseFromString(self.content)
        except DecodeError as error:
            raise CoreError(
                f"the signed content is no {self.message.DESCRIPTOR.name} ({error})",
                where=self.where,
            ) from error


def read_envelope(path: Path, publisher_key: bytes | None) -> VerifiedEnvelope:
    """Reads and verifies an envelope. With `publisher_key` (32 bytes) only that key's signature
    counts. Raises CoreError naming the file."""
    where = str(path)
    with open_regular(path) as file:
        nbytes = file.seek(0, 2)
        if nbytes > ENVELOPE_LIMIT_NBYTES:
            raise CoreError(
                f"has {nbytes} bytes, over the limit of {ENVELOPE_LIMIT_NBYTES}", where=where
            )
        content = read_exactly(file, nbytes)
    envelope = core_pb2.SignedEnvelope()
    try:
        envelope.ParseFromString(content)
    except DecodeError as error:
        raise CoreError(f"is no signed envelope ({error})", where=where, remedy=_AGAIN) from error
    if len(UnknownFieldSet(envelope)):
        raise CoreError(
            f"holds an unknown field, number {UnknownFieldSet(envelope)[0].field_number}, outside"
            " what is signed",
            where=where,
            remedy=_AGAIN,
        )
    if len(envelope.public_key) != PUBLIC_KEY_NBYTES or len(envelope.signature) != SIGNATURE_NBYTES:
        raise CoreError("is not signed: public key or signature has the wrong length", where=where)
    if publisher_key is not None and envelope.public_key != publisher_key:
        raise CoreError(
            f"is signed by the key {envelope.public_key.hex()}, not by {publisher_key.hex()}",
            where=where,
            remedy="Use the publisher's core or the right publisher key",
        )
    carried = _carried(envelope, where)
    _verify_signature(envelope, carried, where)
    return VerifiedEnvelope(
        message=carried.message,
        content=carried.content,
        digest=hashlib.sha256(carried.content).hexdigest(),
        public_key=envelope.public_key,
        where=where,
    )


@dataclass(frozen=True, slots=True)
class _Carried:
    """What a carrier signs: `domain` followed by `content`, a serialized `message`."""

    message: type[core_pb2.CoreBody] | type[core_pb2.ProtectedIndex]
    domain: bytes
    content: bytes


def _carried(envelope: core_pb2.SignedEnvelope, where: str) -> _Carried:
    if envelope.body and envelope.index:
        raise CoreError("holds a body and an index: a core has one", where=where, remedy=_AGAIN)
    if envelope.index:
        return _Carried(core_pb2.ProtectedIndex, INDEX_SIGNATURE_DOMAIN, envelope.index)
    return _Carried(core_pb2.CoreBody, SIGNATURE_DOMAIN, envelope.body)


def _verify_signature(envelope: core_pb2.SignedEnvelope, carried: _Carried, where: str) -> None:
    """Raises CoreError unless the envelope's key signed the carrier's domain and content."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(envelope.public_key)
        key.verify(envelope.signature, carried.domain + carried.content)
    except (InvalidSignature, ValueError) as error:
        raise CoreError(
            "the signature doesn't belong to this body and key", where=where, remedy=_AGAIN
        ) from error


_AGAIN = "The file is damaged or was altered: get the core again"
