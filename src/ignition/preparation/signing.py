"""Ed25519 keys of publishers: making key files, reading them, signing what carries a core.

The private key file is PKCS #8 PEM, readable by its owner alone; the public key file is PEM too,
for `helios --publisher-key`. Verification is Helios's business.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.core.format import INDEX_SIGNATURE_DOMAIN, SIGNATURE_DOMAIN
from helios.errors import CoreError
from helios.schema import core_pb2

PRIVATE_KEY_MODE: Final = 0o600


def generate(path: Path) -> Path:
    """Writes a new private key to `path` and its public key beside it; returns the latter's path.

    Raises CoreError where either file exists: an overwritten key is lost.
    """
    public_path = path.with_name(path.name + ".pub")
    for existing in (path, public_path):
        if existing.exists():
            raise CoreError("exists already", where=str(existing), remedy="Choose another name")
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    try:
        # The mode is the file's from its first byte on.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_KEY_MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(private)
        public_path.write_bytes(public)
    except OSError as error:
        raise CoreError(
            f"can't be written: {error.strerror}", where=str(path), remedy="Check the folder"
        ) from error
    return public_path


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """The key in a file that `generate` wrote. Raises CoreError naming the file."""
    remedy = "Make a key with `ignition keygen FILE`"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CoreError(
            f"the key can't be read: {error.strerror}", where=str(path), remedy=remedy
        ) from error
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CoreError(
            "holds no unencrypted PEM private key", where=str(path), remedy=remedy
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise CoreError("holds another kind of key than Ed25519", where=str(path), remedy=remedy)
    return key


def sign(body: bytes, key: Ed25519PrivateKey) -> core_pb2.SignedEnvelope:
    """The envelope of a serialized CoreBody. Ed25519 is deterministic."""
    return core_pb2.SignedEnvelope(
        body=body,
        public_key=key.public_key().public_bytes_raw(),
        signature=key.sign(SIGNATURE_DOMAIN + body),
    )


def sign_index(index: bytes, key: Ed25519PrivateKey) -> core_pb2.SignedEnvelope:
    """The envelope of a serialized ProtectedIndex."""
    return core_pb2.SignedEnvelope(
        index=index,
        public_key=key.public_key().public_bytes_raw(),
        signature=key.sign(INDEX_SIGNATURE_DOMAIN + index),
    )
