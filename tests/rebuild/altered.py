"""Alters the signed content of a finished core and signs it again, with the key of these tests."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.core import format as core_format
from helios.schema import core_pb2
from ignition.preparation import signing
from ignition.preparation.export import serialized

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC_KEY = KEY.public_key().public_bytes_raw()


def altered(core: Path, folder: Path, change: Callable[[Any, Any], object]) -> Path:
    """A copy of a core in `folder`; `change` gets the signed message (CoreBody, ProtectedIndex)
    and its deployment (DeploymentBody, ModelIndex)."""
    shutil.copytree(core, folder)
    path = folder / core_format.ENVELOPE_FILE
    envelope = core_pb2.SignedEnvelope.FromString(path.read_bytes())
    if envelope.body:
        body = core_pb2.CoreBody.FromString(envelope.body)
        change(body, body.deployment)
        envelope = signing.sign(serialized(body), KEY)
    else:
        index = core_pb2.ProtectedIndex.FromString(envelope.index)
        change(index, index.model)
        envelope = signing.sign_index(serialized(index), KEY)
    path.write_bytes(serialized(envelope))
    return folder


def replace_frame(resource: core_pb2.ExecutableResource, folder: Path, stored: bytes) -> None:
    """Gives an executable resource other stored bytes."""
    digest = hashlib.sha256(stored).digest()
    name = core_format.frame_content_name(digest)
    (folder / core_format.RESOURCE_FOLDER / name).write_bytes(stored)
    resource.stored.nbytes, resource.stored.sha256 = len(stored), digest
    resource.chunk_sha256[:] = core_format.chunk_digests(stored)


def replace_weights(resource: core_pb2.WeightResource, folder: Path, content: bytes) -> None:
    """Gives a weight resource other content of the same length."""
    resource.chunk_sha256[:] = core_format.chunk_digests(content)
    name = core_format.weight_content_name(resource.chunk_sha256)
    (folder / core_format.RESOURCE_FOLDER / name).write_bytes(content)
