"""The signed body of a core, decoded: resources with their commitments, targets, publisher.

Reads a message whose signature has been verified; a signer can still be wrong or hostile, so
every size, count and reference is checked before anything uses it. `opened_core` is the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from helios.contract.fields import refuse_unknown_fields
from helios.core.format import (
    CHUNK_NBYTES,
    DECODED_LIMIT_NBYTES,
    FORMAT_VERSION,
    SHA256_NBYTES,
    WEIGHT_ALIGNMENT,
    WEIGHT_LIMIT_NBYTES,
    chunk_count,
    frame_content_name,
    weight_content_name,
)
from helios.errors import ContractError, CoreError
from helios.schema import core_pb2


class ResourceKind(IntEnum):
    """What an executable resource holds. Numbers are the schema's."""

    EXECUTION_MANIFEST = 1
    TOKENIZER = 2
    CHAT_TEMPLATE = 3
    ORACLE = 4
    MODULE = 5


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
    def content_name(self) -> str:
        """File name of the content."""
        return weight_content_name(self.chunk_sha256)


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
    """A body's parts by id; `template_resource` and `oracle_resource` are empty where absent."""

    namespace: str
    licence_terms: str
    frames: Mapping[str, FrameResource]
    weights: Mapping[str, WeightResource]
    targets: Mapping[str, DeploymentTarget]
    tokenizer_resource: str
    template_resource: str
    oracle_resource: str


def decode_body(message: core_pb2.CoreBody) -> DecodedBody:
    """The checked body; its contract is decoded apart. Raises CoreError naming the field."""
    if message.format_version != FORMAT_VERSION:
        raise CoreError(
            f"payload format version {message.format_version} is not supported",
            where="format_version",
            remedy=f"This Helios reads version {FORMAT_VERSION}",
        )
    _refuse_unknown(message)
    if not message.publisher.namespace:
        raise CoreError("is empty", where="publisher.namespace")
    if not message.deployment.HasField("contract"):
        raise CoreError("is missing", where="deployment.contract")
    frames = {
        resource.id: _frame(resource, f"executable_resources[{i}]")
        for i, resource in enumerate(message.executable_resources)
    }
    weights = {
        resource.id: _weight(resource, f"weight_resources[{i}]")
        for i, resource in enumerate(message.weight_resources)
    }
    count = len(message.executable_resources) + len(message.weight_resources)
    if len(frames.keys() | weights.keys()) != count:
        raise CoreError("two resources have the same id", where="executable and weight resources")
    deployment = message.deployment
    where = "deployment"
    _refer(frames, deployment.tokenizer_resource, ResourceKind.TOKENIZER, f"{where}.tokenizer")
    if deployment.template_resource:
        kind = ResourceKind.CHAT_TEMPLATE
        _refer(frames, deployment.template_resource, kind, f"{where}.template")
    if deployment.oracle_resource:
        _refer(frames, deployment.oracle_resource, ResourceKind.ORACLE, f"{where}.oracle")
    targets = [
        _target(target, f"{where}.targets[{i}]", frames, weights)
        for i, target in enumerate(deployment.targets)
    ]
    if len({target.name for target in targets}) != len(targets):
        raise CoreError("two targets have the same name", where=f"{where}.targets")
    return DecodedBody(
        namespace=message.publisher.namespace,
        licence_terms=message.publisher.licence_terms,
        frames=frames,
        weights=weights,
        targets={target.name: target for target in targets},
        tokenizer_resource=deployment.tokenizer_resource,
        template_resource=deployment.template_resource,
        oracle_resource=deployment.oracle_resource,
    )


def _refuse_unknown(message: core_pb2.CoreBody) -> None:
    """Unknown fields anywhere but in what only describes preparation (rebuild manifest, weight
    catalogs) and in the contract, whose decoder names its own."""
    stripped = core_pb2.CoreBody()
    stripped.CopyFrom(message)
    stripped.deployment.ClearField("rebuild")
    stripped.deployment.ClearField("contract")
    for target in stripped.deployment.targets:
        for rank in target.ranks:
            rank.ClearField("weight_catalog")
    try:
        refuse_unknown_fields(stripped)
    except ContractError as error:
        raise CoreError(error.what, where=error.where, remedy=error.remedy) from None


def _frame(message: Any, where: str) -> FrameResource:
    where = _named(message.id, where)
    try:
        kind = ResourceKind(message.kind)
    except ValueError:
        raise CoreError(f"unknown resource kind {message.kind}", where=where) from None
    if not 1 <= message.stored.nbytes <= DECODED_LIMIT_NBYTES:
        raise CoreError(f"stored length {message.stored.nbytes} is out of bounds", where=where)
    if message.decoded_nbytes > DECODED_LIMIT_NBYTES:
        raise CoreError(f"decoded length {message.decoded_nbytes} is out of bounds", where=where)
    if len(message.stored.sha256) != SHA256_NBYTES:
        raise CoreError("the stored digest is no SHA-256", where=where)
    return FrameResource(
        id=message.id,
        kind=kind,
        stored_nbytes=message.stored.nbytes,
        stored_sha256=message.stored.sha256,
        decoded_nbytes=message.decoded_nbytes,
        chunk_sha256=_commitments(message, message.stored.nbytes, where),
    )


def _weight(message: Any, where: str) -> WeightResource:
    where = _named(message.id, where)
    if not 1 <= message.nbytes <= WEIGHT_LIMIT_NBYTES:
        raise CoreError(f"length {message.nbytes} is out of bounds", where=where)
    if message.alignment != WEIGHT_ALIGNMENT:
        raise CoreError(f"alignment {message.alignment} is not {WEIGHT_ALIGNMENT}", where=where)
    return WeightResource(
        id=message.id,
        nbytes=message.nbytes,
        chunk_sha256=_commitments(message, message.nbytes, where),
    )


def _named(resource: str, where: str) -> str:
    if not resource:
        raise CoreError("is empty", where=f"{where}.id")
    return f"resource {resource!r}"


def _commitments(message: Any, nbytes: int, where: str) -> tuple[bytes, ...]:
    if message.chunk_nbytes != CHUNK_NBYTES:
        raise CoreError(f"chunks of {message.chunk_nbytes} bytes, not {CHUNK_NBYTES}", where=where)
    digests = tuple(message.chunk_sha256)
    if len(digests) != chunk_count(nbytes):
        raise CoreError(
            f"{len(digests)} chunk digests for {chunk_count(nbytes)} chunks", where=where
        )
    if any(len(digest) != SHA256_NBYTES for digest in digests):
        raise CoreError("a chunk digest is no SHA-256", where=where)
    return digests


def _target(
    message: Any,
    where: str,
    frames: Mapping[str, FrameResource],
    weights: Mapping[str, WeightResource],
) -> DeploymentTarget:
    if not message.name or not message.ranks:
        raise CoreError("has no name or no ranks", where=where)
    ranks = []
    for number, rank in enumerate(message.ranks):
        path = f"{where}.ranks[{number}]"
        manifest = ResourceKind.EXECUTION_MANIFEST
        _refer(frames, rank.manifest_resource, manifest, f"{path}.manifest")
        for resource in rank.module_resources:
            _refer(frames, resource, ResourceKind.MODULE, f"{path}.module")
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
    frames: Mapping[str, FrameResource], resource: str, kind: ResourceKind, where: str
) -> None:
    found = frames.get(resource)
    if found is None:
        raise CoreError(f"no executable resource {resource!r}", where=f"{where}_resource")
    if found.kind is not kind:
        raise CoreError(
            f"{resource!r} is {found.kind.name}, not {kind.name}", where=f"{where}_resource"
        )
