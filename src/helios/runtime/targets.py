"""Targets of an opened core: which resources serve one, and its execution manifest.

Used by `NativeModel` and by inspection; nothing is allocated here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.protobuf.message import DecodeError

from helios.core import OpenedCore, ResourceKind
from helios.core.body import RankResources
from helios.errors import ContractError
from helios.runtime.manifest import Manifest
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.rank_agreement import check_ranks_agree
from helios.runtime.rank_errors import naming_rank
from helios.schema import execution_pb2

CUDA = "cuda"
# The reference device replays the programs of any target, of a core with several those of cpu.
_REFERENCE = "reference"
_REPLAYED_FIRST = "cpu"


def runs(target: str, manifest: str) -> bool:
    """Whether a device of `target` runs the manifest of that target."""
    return target in (_REFERENCE, manifest)


def choose_target(core: OpenedCore, asked: str | None) -> str:
    """The target to run: what is asked for, where `cuda` stands for the core's only cuda target;
    without a word cpu where the core has it, else the only target that it has. Raises
    ContractError."""
    if asked is not None and asked != CUDA:
        return asked
    found = [name for name in core.targets if asked is None or name.startswith(f"{CUDA}:")]
    if asked is None and "cpu" in found:
        return "cpu"
    if len(found) == 1:
        return found[0]
    count = len(found) or "no"
    raise ContractError(
        f"the core has {count} {'targets' if asked is None else 'cuda targets'}",
        where=str(core.folder),
        remedy=f"Name one with --target: it has {', '.join(core.targets) or 'none'}",
    )


def deployed_ranks(core: OpenedCore, target: str) -> tuple[RankResources, ...]:
    """The ranks of a target, at least one. Raises ContractError where the core lacks it."""
    name = target
    if target == _REFERENCE:
        name = _REPLAYED_FIRST if _REPLAYED_FIRST in core.targets else next(iter(core.targets), "")
    deployed = core.targets.get(name)
    if deployed is None:
        raise ContractError(
            f"the core has no target {name!r}",
            where=str(core.folder),
            remedy=f"It has {', '.join(core.targets) or 'none'}",
        )
    return deployed.ranks


def deployed_rank(core: OpenedCore, target: str) -> RankResources:
    """The one rank of a target. Raises ContractError where the core lacks it or has several."""
    ranks = deployed_ranks(core, target)
    if len(ranks) != 1:
        raise ContractError(
            f"target {target!r} has {len(ranks)} ranks, and this takes one",
            where=str(core.folder),
            remedy="Load it with NativeModel.load",
        )
    return ranks[0]


def read_manifest(core: OpenedCore, rank: RankResources) -> Manifest:
    """A rank's decoded manifest. Raises CoreError or ContractError."""
    content = core.read_resource(rank.manifest_resource, ResourceKind.EXECUTION_MANIFEST)
    message = execution_pb2.ExecutionManifest()
    try:
        message.ParseFromString(content)
    except DecodeError as error:
        raise ContractError(
            f"is no ExecutionManifest ({error})", where=f"resource {rank.manifest_resource!r}"
        ) from error
    return decode_manifest(message)


def read_manifests(core: OpenedCore, ranks: Sequence[RankResources]) -> tuple[Manifest, ...]:
    """The decoded manifests of a target's ranks; those of one resource are one. Raises CoreError,
    or ContractError, also where two ranks contradict each other; of several, errors name the
    rank."""
    if len(ranks) == 1:
        return (read_manifest(core, ranks[0]),)
    found: dict[str, Manifest] = {}
    for number, rank in enumerate(ranks):
        if rank.manifest_resource not in found:
            with naming_rank(number):
                found[rank.manifest_resource] = read_manifest(core, rank)
    manifests = tuple(found[rank.manifest_resource] for rank in ranks)
    check_ranks_agree(manifests)
    return manifests


def ranks_by_manifest(
    manifests: Sequence[Manifest],
) -> tuple[tuple[Manifest, tuple[int, ...]], ...]:
    """Each manifest of `read_manifests` once, with the ranks whose it is."""
    return tuple(
        (manifest, tuple(rank for rank, other in enumerate(manifests) if other is manifest))
        for number, manifest in enumerate(manifests)
        if not any(other is manifest for other in manifests[:number])
    )


def read_modules(core: OpenedCore, rank: RankResources) -> Mapping[str, bytes]:
    """Content of a rank's executable modules by id; none on targets whose kernels are the
    device's own. Raises CoreError."""
    return {
        module: bytes(core.read_resource(module, ResourceKind.MODULE))
        for module in rank.module_resources
    }
