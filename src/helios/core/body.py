"""The signed part of a core, decoded: publisher, targets, and the resources that serve them.

Two carriers say the same in different messages: a payload core's `CoreBody`, a logical-resource
core's `ProtectedIndex`. Both become one `DecodedBody` here, and nothing behind it asks which it
was. The signature has been verified; references are checked. `opened_core` is the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TypeVar

from helios.contract.fields import refuse_unknown_fields
from helios.core.format import (
    FORMAT_VERSION,
    INDEX_VERSION_FRAMES,
    INDEX_VERSION_SEALED,
    NAMESPACE_LIMIT,
    SHA256_NBYTES,
)
from helios.core.resources import (
    FrameResource,
    ResourceKind,
    SealedResource,
    WeightResource,
    decode_frame_resource,
    decode_sealed_resource,
    decode_weight_resource,
)
from helios.dataclass import dataclass
from helios.errors import ContractError, CoreError
from helios.schema import core_pb2

Deployment = core_pb2.DeploymentBody | core_pb2.ModelIndex
Carried = core_pb2.CoreBody | core_pb2.ProtectedIndex


@dataclass(frozen=True, slots=True)
class RankResources:
    """Resource ids that one rank of a target loads."""

    manifest_resource: str
    weight_resources: tuple[str, ...]
    module_resources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeploymentTarget:
    """One way to run the core: "cpu", "cuda:sm_90"."""

    name: str
    ranks: tuple[RankResources, ...]


@dataclass(frozen=True)
class DecodedBody:
    """A core's parts by id. `carrier` is for people. `deployment` is the message whose contract,
    rebuild manifest and weight catalogs are decoded apart, and no part of equality. `key_id` names
    the key of a sealed core. `template_resource` and `oracle_resource` are empty where absent."""

    carrier: str
    namespace: str
    licence_terms: str
    deployment: Deployment = field(compare=False)
    executables: Mapping[str, FrameResource | SealedResource]
    weights: Mapping[str, WeightResource | SealedResource]
    key_id: bytes | None
    targets: Mapping[str, DeploymentTarget]
    tokenizer_resource: str
    template_resource: str
    oracle_resource: str


def check_claim(kind: type[Carried], version: int, publisher: core_pb2.Publisher) -> None:
    """Refuses a version of the message `kind` that isn't known, and a publisher without a name or
    with one that is too long: what must hold before anybody is asked about trust. Raises CoreError
    naming the field."""
    if kind is core_pb2.CoreBody:
        known, where, what = [FORMAT_VERSION], "format_version", "payload format version"
    else:
        known, where = [INDEX_VERSION_SEALED, INDEX_VERSION_FRAMES], "version"
        what = "index version"
    if version not in known:
        raise CoreError(
            f"{what} {version} is not supported",
            where=where,
            remedy=f"This Helios reads {' and '.join(map(str, known))}",
        )
    if not publisher.namespace:
        raise CoreError("is empty", where="publisher.namespace")
    if len(publisher.namespace) > NAMESPACE_LIMIT:
        raise CoreError(
            f"has {len(publisher.namespace)} characters, over the limit of {NAMESPACE_LIMIT}",
            where="publisher.namespace",
        )


def decode_body(message: Carried) -> DecodedBody:
    """The checked body; its contract is decoded apart. Raises CoreError naming the field."""
    if isinstance(message, core_pb2.CoreBody):
        return _decode_payload(message)
    return _decode_index(message)


def _decode_payload(message: core_pb2.CoreBody) -> DecodedBody:
    check_claim(core_pb2.CoreBody, message.format_version, message.publisher)
    stripped = core_pb2.CoreBody()
    stripped.CopyFrom(message)
    _refuse_unknown(stripped, stripped.deployment)
    return _decode(
        f"payload, format {FORMAT_VERSION}",
        message.publisher,
        message.deployment,
        "deployment",
        [
            decode_frame_resource(resource, f"executable_resources[{i}]")
            for i, resource in enumerate(message.executable_resources)
        ],
        [
            decode_weight_resource(resource, f"weight_resources[{i}]")
            for i, resource in enumerate(message.weight_resources)
        ],
        key_id=None,
    )


def _decode_index(message: core_pb2.ProtectedIndex) -> DecodedBody:
    check_claim(core_pb2.ProtectedIndex, message.version, message.publisher)
    stripped = core_pb2.ProtectedIndex()
    stripped.CopyFrom(message)
    _refuse_unknown(stripped, stripped.model)
    executables: list[FrameResource | SealedResource]
    weights: list[WeightResource | SealedResource]
    if message.version == INDEX_VERSION_FRAMES:
        _refuse_foreign(message, ("encrypted", "key_id"))
        executables = [
            decode_frame_resource(resource, f"frames[{i}]")
            for i, resource in enumerate(message.frames)
        ]
        weights = [
            decode_weight_resource(resource, f"weights[{i}]")
            for i, resource in enumerate(message.weights)
        ]
        carrier, key_id = "logical resources, index 6 (zstd frames)", None
    else:
        _refuse_foreign(message, ("frames", "weights"))
        sealed = _decode_sealed(message)
        executables = [r for r in sealed if r.kind is not ResourceKind.WEIGHTS]
        weights = [r for r in sealed if r.kind is ResourceKind.WEIGHTS]
        carrier, key_id = "logical resources, index 4 (AES-GCM chunks)", message.key_id
    return _decode(
        carrier, message.publisher, message.model, "model", executables, weights, key_id=key_id
    )


def _decode_sealed(message: core_pb2.ProtectedIndex) -> list[SealedResource]:
    if len(message.key_id) != SHA256_NBYTES:
        raise CoreError(f"has {len(message.key_id)} bytes, not {SHA256_NBYTES}", where="key_id")
    sealed = [
        decode_sealed_resource(resource, f"encrypted[{i}]")
        for i, resource in enumerate(message.encrypted)
    ]
    # A nonce that occurs twice under one key gives both contents away.
    if len({resource.nonce_prefix for resource in sealed}) != len(sealed):
        raise CoreError("two resources have the same nonce prefix", where="encrypted")
    return sealed


def _refuse_foreign(message: core_pb2.ProtectedIndex, names: Iterable[str]) -> None:
    """Refuses fields that belong to another version."""
    for name in names:
        if getattr(message, name):
            raise CoreError(f"index version {message.version} has no such field", where=name)


def _refuse_unknown(stripped: Carried, deployment: Deployment) -> None:
    """Unknown fields anywhere but in what only describes preparation (rebuild manifest, weight
    catalogs) and in the contract, whose decoder names its own. Empties those parts."""
    deployment.ClearField("rebuild")
    deployment.ClearField("contract")
    for target in deployment.targets:
        for rank in target.ranks:
            rank.ClearField("weight_catalog")
    try:
        refuse_unknown_fields(stripped)
    except ContractError as error:
        raise CoreError(error.what, where=error.where, remedy=error.remedy) from None


def _decode(
    carrier: str,
    publisher: core_pb2.Publisher,
    deployment: Deployment,
    where: str,
    executables: Sequence[FrameResource | SealedResource],
    weights: Sequence[WeightResource | SealedResource],
    *,
    key_id: bytes | None,
) -> DecodedBody:
    """What both carriers share; `where` is the deployment's field."""
    if not deployment.HasField("contract"):
        raise CoreError("is missing", where=f"{where}.contract")
    known = _by_id(executables)
    known_weights = _by_id(weights)
    if len(known.keys() | known_weights.keys()) != len(executables) + len(weights):
        raise CoreError("two resources have the same id", where="resources")
    _refer(known, deployment.tokenizer_resource, ResourceKind.TOKENIZER, f"{where}.tokenizer")
    if deployment.template_resource:
        kind = ResourceKind.CHAT_TEMPLATE
        _refer(known, deployment.template_resource, kind, f"{where}.template")
    if deployment.oracle_resource:
        _refer(known, deployment.oracle_resource, ResourceKind.ORACLE, f"{where}.oracle")
    targets = [
        _target(target, f"{where}.targets[{i}]", known, known_weights)
        for i, target in enumerate(deployment.targets)
    ]
    if len({target.name for target in targets}) != len(targets):
        raise CoreError("two targets have the same name", where=f"{where}.targets")
    return DecodedBody(
        carrier=carrier,
        namespace=publisher.namespace,
        licence_terms=publisher.licence_terms,
        deployment=deployment,
        executables=known,
        weights=known_weights,
        key_id=key_id,
        targets={target.name: target for target in targets},
        tokenizer_resource=deployment.tokenizer_resource,
        template_resource=deployment.template_resource,
        oracle_resource=deployment.oracle_resource,
    )


Resource = TypeVar("Resource", FrameResource | SealedResource, WeightResource | SealedResource)


def _by_id(resources: Sequence[Resource]) -> dict[str, Resource]:
    return {resource.id: resource for resource in resources}


def _target(
    message: core_pb2.DeploymentTarget,
    where: str,
    executables: Mapping[str, FrameResource | SealedResource],
    weights: Mapping[str, WeightResource | SealedResource],
) -> DeploymentTarget:
    if not message.name or not message.ranks:
        raise CoreError("has no name or no ranks", where=where)
    ranks = []
    for number, rank in enumerate(message.ranks):
        path = f"{where}.ranks[{number}]"
        manifest = ResourceKind.EXECUTION_MANIFEST
        _refer(executables, rank.manifest_resource, manifest, f"{path}.manifest")
        for resource in rank.module_resources:
            _refer(executables, resource, ResourceKind.MODULE, f"{path}.module")
        _refuse_repeated(rank.weight_resources, f"{path}.weight_resources")
        for resource in rank.weight_resources:
            if resource not in weights:
                raise CoreError(
                    f"no weight resource {resource!r}", where=f"{path}.weight_resources"
                )
        ranks.append(
            RankResources(
                manifest_resource=rank.manifest_resource,
                weight_resources=tuple(rank.weight_resources),
                module_resources=tuple(rank.module_resources),
            )
        )
    return DeploymentTarget(message.name, tuple(ranks))


def _refuse_repeated(resources: Sequence[str], where: str) -> None:
    if len(set(resources)) != len(resources):
        raise CoreError("a resource occurs twice", where=where)


def _refer(
    executables: Mapping[str, FrameResource | SealedResource],
    resource: str,
    kind: ResourceKind,
    where: str,
) -> None:
    found = executables.get(resource)
    if found is None:
        raise CoreError(f"no executable resource {resource!r}", where=f"{where}_resource")
    if found.kind is not kind:
        raise CoreError(
            f"{resource!r} is {found.kind.name}, not {kind.name}", where=f"{where}_resource"
        )
