"""An opened core, written anew with several ranks: each lists the same resources, or its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.core import OpenedCore, ResourceKind
from helios.schema import core_pb2, execution_pb2
from ignition.preparation.export import CoreWriter, new_folder, serialized

ChangeManifest = Callable[[execution_pb2.ExecutionManifest], object]
ChangeWeights = Callable[[bytes], bytes]


def write_ranked_core(
    core: OpenedCore,
    destination: Path,
    key: Ed25519PrivateKey,
    *,
    ranks: int = 2,
    manifests: Mapping[int, ChangeManifest] | None = None,
    weights: Mapping[int, ChangeWeights] | None = None,
) -> Path:
    """Writes it, signed with `key`, all targets with so many ranks. `manifests` and `weights` say
    what a rank has otherwise; it then names resources of its own."""
    deployment = core_pb2.DeploymentBody()
    deployment.CopyFrom(core.deployment)
    with new_folder(destination, replace=False) as folder:
        writer = CoreWriter(folder)
        for name, resource in core.decoded.executables.items():
            kind = ResourceKind(resource.kind)
            writer.add_frame(name, kind.value, core.read_resource(name, kind))
        for name in core.decoded.weights:
            writer.add_weights(name, [core.find_resource(name).read_bytes()])
        for target in deployment.targets:
            for _ in range(1, ranks):
                target.ranks.add().CopyFrom(target.ranks[0])
            for rank, change in (weights or {}).items():
                _own_weights(core, writer, target.ranks[rank], f"{target.name}.{rank}", change)
            changed = dict.fromkeys([*(manifests or {}), *(weights or {})])
            for rank in changed:
                change_manifest = (manifests or {}).get(rank, _unchanged)
                _own_manifest(
                    core, writer, target.ranks[rank], f"{target.name}.{rank}", change_manifest
                )
        publisher = core_pb2.Publisher(
            namespace=core.acceptance.namespace, licence_terms=core.decoded.licence_terms
        )
        writer.finish(publisher, deployment, key)
    return destination


def _unchanged(message: execution_pb2.ExecutionManifest) -> None:
    pass


def _own_weights(
    core: OpenedCore,
    writer: CoreWriter,
    rank: core_pb2.RankResources,
    suffix: str,
    change: ChangeWeights,
) -> None:
    for number, name in enumerate(rank.weight_resources):
        own = f"{name}.{suffix}"
        writer.add_weights(own, [change(core.find_resource(name).read_bytes())])
        rank.weight_resources[number] = own


def _own_manifest(
    core: OpenedCore,
    writer: CoreWriter,
    rank: core_pb2.RankResources,
    suffix: str,
    change: ChangeManifest,
) -> None:
    """The rank's manifest with its own weights named in it."""
    kind = ResourceKind.EXECUTION_MANIFEST
    message = execution_pb2.ExecutionManifest()
    message.ParseFromString(core.read_resource(rank.manifest_resource, kind))
    for buffer in message.buffers:
        if f"{buffer.resource}.{suffix}" in rank.weight_resources:
            buffer.resource = f"{buffer.resource}.{suffix}"
    change(message)
    rank.manifest_resource = f"{rank.manifest_resource}.{suffix}"
    writer.add_frame(rank.manifest_resource, kind.value, serialized(message))
