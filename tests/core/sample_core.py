"""Writes small cores for tests, with every part open to being damaged."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import zstandard
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.core import format as core_format
from helios.schema import core_pb2 as pb
from tests.contract.sample import sample_contract

NAMESPACE = "tests/publisher"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC_KEY = KEY.public_key().public_bytes_raw()

CONTENT: dict[str, tuple[int, bytes]] = {
    "manifest": (pb.RESOURCE_KIND_EXECUTION_MANIFEST, b"manifest bytes " * 40),
    "tokenizer": (pb.RESOURCE_KIND_TOKENIZER, bytes(range(256)) * 8),
    "template": (pb.RESOURCE_KIND_CHAT_TEMPLATE, b"{{ messages }}"),
    "oracle": (pb.RESOURCE_KIND_ORACLE, b"oracle" * 11),
}
# Three chunks, the last one short, each with bytes of its own.
WEIGHTS = b"".join(bytes([c]) * n for c, n in ((1, 4 << 20), (2, 4 << 20), (3, 4096)))


def compress(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=core_format.ZSTD_LEVEL).compress(content)


def frame_resource(name: str, kind: int, content: bytes, stored: bytes) -> pb.ExecutableResource:
    return pb.ExecutableResource(
        id=name,
        kind=kind,  # type: ignore[arg-type]
        stored=pb.StoredFrame(nbytes=len(stored), sha256=hashlib.sha256(stored).digest()),
        decoded_nbytes=len(content),
        chunk_nbytes=core_format.CHUNK_NBYTES,
        chunk_sha256=core_format.chunk_digests(stored),
    )


def sample_body() -> tuple[pb.CoreBody, dict[str, bytes]]:
    """A valid body and the stored bytes of each resource."""
    stored = {name: compress(content) for name, (_, content) in CONTENT.items()}
    body = pb.CoreBody(
        format_version=2,
        publisher=pb.Publisher(namespace=NAMESPACE, licence_terms="none"),
        deployment=pb.DeploymentBody(
            contract=sample_contract(),
            tokenizer_resource="tokenizer",
            template_resource="template",
            oracle_resource="oracle",
            targets=[
                pb.DeploymentTarget(
                    name="cpu",
                    ranks=[
                        pb.RankResources(manifest_resource="manifest", weight_resources=["weights"])
                    ],
                )
            ],
        ),
        executable_resources=[
            frame_resource(name, kind, content, stored[name])
            for name, (kind, content) in CONTENT.items()
        ],
        weight_resources=[
            pb.WeightResource(
                id="weights",
                nbytes=len(WEIGHTS),
                alignment=core_format.WEIGHT_ALIGNMENT,
                chunk_nbytes=core_format.CHUNK_NBYTES,
                chunk_sha256=core_format.chunk_digests(WEIGHTS),
            )
        ],
    )
    return body, {**stored, "weights": WEIGHTS}


def sign(body: pb.CoreBody) -> pb.SignedEnvelope:
    wire = body.SerializeToString(deterministic=True)
    return pb.SignedEnvelope(
        body=wire, public_key=PUBLIC_KEY, signature=KEY.sign(core_format.SIGNATURE_DOMAIN + wire)
    )


def content_names(body: pb.CoreBody) -> dict[str, str]:
    names = {
        r.id: core_format.frame_content_name(r.stored.sha256) for r in body.executable_resources
    }
    for weight in body.weight_resources:
        names[weight.id] = core_format.weight_content_name(weight.chunk_sha256)
    return names


def write_core(
    folder: Path,
    change: Callable[[pb.CoreBody], object] = lambda body: None,
    stored: dict[str, bytes] | None = None,
) -> Path:
    """Writes a signed core whose body `change` has altered before signing; `stored` replaces
    resources' bytes and their commitments."""
    body, files = sample_body()
    for name, replaced in (stored or {}).items():
        files[name] = replaced
        index = list(CONTENT).index(name)
        kind, content = CONTENT[name]
        body.executable_resources[index].CopyFrom(frame_resource(name, kind, content, replaced))
    change(body)
    names = content_names(body)
    (folder / core_format.RESOURCE_FOLDER).mkdir(parents=True)
    locations = pb.LocationSet()
    for resource, name in names.items():
        if resource in files:
            (folder / core_format.RESOURCE_FOLDER / name).write_bytes(files[resource])
        locations.locations.add(resource=resource, uris=[core_format.resource_uri(name)])
    (folder / core_format.LOCATIONS_FILE).write_bytes(locations.SerializeToString())
    (folder / core_format.ENVELOPE_FILE).write_bytes(sign(body).SerializeToString())
    return folder
