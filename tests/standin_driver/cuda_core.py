"""A prepared cpu core as one of a cuda target alone, for the stand-in driver."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.core import OpenedCore, ResourceKind
from helios.schema import core_pb2, execution_pb2
from ignition.preparation.export import CoreWriter, new_folder, serialized
from tests.standin_driver.cuda_manifest import TARGET, as_cuda

_MANIFEST = "manifest"


def write_cuda_core(core: OpenedCore, destination: Path, key: Ed25519PrivateKey) -> Path:
    """Writes it; everything but manifest and modules is the same content."""
    deployment = core_pb2.DeploymentBody()
    deployment.CopyFrom(core.deployment)
    (target,) = deployment.targets
    (rank,) = target.ranks
    message = execution_pb2.ExecutionManifest()
    message.ParseFromString(
        core.read_resource(rank.manifest_resource, ResourceKind.EXECUTION_MANIFEST)
    )
    manifest, modules = as_cuda(message)
    target.name = TARGET
    rank.manifest_resource = _MANIFEST
    rank.module_resources.extend(modules)
    with new_folder(destination, replace=False) as folder:
        writer = CoreWriter(folder)
        for weights in rank.weight_resources:
            writer.add_weights(weights, [core.find_resource(weights).read_bytes()])
        kinds = core_pb2.ResourceKind
        frames: list[tuple[str, core_pb2.ResourceKind, bytes]] = [
            (_MANIFEST, kinds.RESOURCE_KIND_EXECUTION_MANIFEST, serialized(manifest)),
            *((name, kinds.RESOURCE_KIND_MODULE, content) for name, content in modules.items()),
        ]
        for name, kind in (
            (deployment.tokenizer_resource, kinds.RESOURCE_KIND_TOKENIZER),
            (deployment.template_resource, kinds.RESOURCE_KIND_CHAT_TEMPLATE),
            (deployment.oracle_resource, kinds.RESOURCE_KIND_ORACLE),
        ):
            if name:
                frames.append((name, kind, core.read_resource(name, ResourceKind(kind))))
        for name, kind, content in frames:
            writer.add_frame(name, kind, content)
        publisher = core_pb2.Publisher(
            namespace=core.acceptance.namespace, licence_terms=core.decoded.licence_terms
        )
        writer.finish(publisher, deployment, key)
    return destination
