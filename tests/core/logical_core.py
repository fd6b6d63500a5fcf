"""Writes logical-resource cores: `ProtectedIndex` version 6 and version 4.

Ignition writes version 6 too; version 4 is only read by the product, so its writer is here. What a
core holds comes from a payload core's body, so that a test can carry one content in every carrier.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from helios.core import format as core_format
from helios.core.resources import ResourceKind, SealedResource
from helios.core.sealed import chunk_associated_data, chunk_nonce, key_id
from helios.schema import core_pb2 as pb
from tests.core.sample_core import CONTENT, KEY, PUBLIC_KEY, WEIGHTS, content_names, sample_body

CORE_KEY = bytes(range(100, 132))


def frames_index(body: pb.CoreBody) -> pb.ProtectedIndex:
    """Version 6 of what `body` says; the resource files are the same."""
    return pb.ProtectedIndex(
        version=6,
        publisher=body.publisher,
        model=model_index(body.deployment),
        frames=body.executable_resources,
        weights=body.weight_resources,
    )


def sealed_index(
    body: pb.CoreBody, contents: Mapping[str, bytes], key: bytes = CORE_KEY
) -> tuple[pb.ProtectedIndex, dict[str, bytes]]:
    """Version 4 of what `body` says, and the files of `contents`, the decoded resources."""
    index = pb.ProtectedIndex(
        version=4,
        publisher=body.publisher,
        model=model_index(body.deployment),
        key_id=key_id(key),
    )
    kinds = {resource.id: ResourceKind(resource.kind) for resource in body.executable_resources}
    kinds |= {resource.id: ResourceKind.WEIGHTS for resource in body.weight_resources}
    files = {}
    for name, kind in kinds.items():
        resource, files[name] = seal(name, kind, contents[name], key)
        index.encrypted.append(sealed_message(resource))
    return index, files


def model_index(deployment: pb.DeploymentBody) -> pb.ModelIndex:
    """The same fields in a logical-resource core's message."""
    model = pb.ModelIndex(
        contract=deployment.contract,
        tokenizer_resource=deployment.tokenizer_resource,
        template_resource=deployment.template_resource,
        oracle_resource=deployment.oracle_resource,
        targets=deployment.targets,
    )
    if deployment.HasField("rebuild"):
        model.rebuild.CopyFrom(deployment.rebuild)
    return model


def seal(
    name: str, kind: ResourceKind, content: bytes, key: bytes = CORE_KEY
) -> tuple[SealedResource, bytes]:
    """A sealed resource and its stored bytes."""
    count = core_format.sealed_chunk_count(len(content))
    plan = SealedResource(
        id=name,
        kind=kind,
        decoded_nbytes=len(content),
        nonce_prefix=hashlib.sha256(name.encode()).digest()[: core_format.NONCE_PREFIX_NBYTES],
        chunk_sha256=(b"",) * count,
    )
    step = core_format.SEALED_STEP_NBYTES
    stored = b"".join(
        AESGCM(key).encrypt(
            chunk_nonce(plan, number),
            content[number * step : (number + 1) * step],
            chunk_associated_data(plan, number),
        )
        for number in range(count)
    )
    return committed(plan, stored), stored


def committed(resource: SealedResource, stored: bytes) -> SealedResource:
    """The resource with commitments that any stored bytes fulfil: only the cipher can object."""
    return replace(resource, chunk_sha256=tuple(core_format.chunk_digests(stored)))


def sealed_message(resource: SealedResource) -> pb.EncryptedResource:
    """What the index says of a sealed resource."""
    return pb.EncryptedResource(
        id=resource.id,
        kind=resource.kind.value,  # type: ignore[arg-type]
        decoded_nbytes=resource.decoded_nbytes,
        chunk_nbytes=core_format.CHUNK_NBYTES,
        nonce_prefix=resource.nonce_prefix,
        chunk_count=len(resource.chunk_sha256),
        chunk_sha256=resource.chunk_sha256,
    )


def sign_index(index: pb.ProtectedIndex) -> pb.SignedEnvelope:
    wire = index.SerializeToString(deterministic=True)
    signature = KEY.sign(core_format.INDEX_SIGNATURE_DOMAIN + wire)
    return pb.SignedEnvelope(index=wire, public_key=PUBLIC_KEY, signature=signature)


def index_names(index: pb.ProtectedIndex) -> dict[str, str]:
    """File name of each resource."""
    names = content_names(
        pb.CoreBody(executable_resources=index.frames, weight_resources=index.weights)
    )
    for sealed in index.encrypted:
        names[sealed.id] = core_format.weight_content_name(sealed.chunk_sha256)
    return names


def write_index(folder: Path, index: pb.ProtectedIndex, files: Mapping[str, bytes]) -> Path:
    """Writes a signed core without a location set: the names follow from what is signed."""
    (folder / core_format.RESOURCE_FOLDER).mkdir(parents=True)
    for resource, name in index_names(index).items():
        if resource in files:
            (folder / core_format.RESOURCE_FOLDER / name).write_bytes(files[resource])
    (folder / core_format.ENVELOPE_FILE).write_bytes(sign_index(index).SerializeToString())
    return folder


def sample_index(version: int) -> tuple[pb.ProtectedIndex, dict[str, bytes]]:
    """The sample core's content in a version of the index."""
    body, files = sample_body()
    if version == 6:
        return frames_index(body), files
    contents = {name: content for name, (_, content) in CONTENT.items()}
    return sealed_index(body, {**contents, "weights": WEIGHTS})
