"""From the resources of several ranks to a `RankGroup`: everything that one rank loads, for each.

Ranks that name the same resource share its content: a manifest is decoded once, weights are mapped
once. Devices open at the same time where they take a while; memory is filled rank by rank, in the
calling thread. `NativeModel` is the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from helios.contract import PreparedContract
from helios.core import OpenedCore
from helios.core.body import RankResources
from helios.core.weights import WeightMap
from helios.dataclass import dataclass
from helios.phases import Phases
from helios.runtime.capacities import Capacities, page_nbytes, with_default_share
from helios.runtime.device import AvailableMemory, Device, DeviceOptions
from helios.runtime.devices.opening import DeviceOpening, check_devices, closed_on_failure
from helios.runtime.manifest import Manifest
from helios.runtime.manifest_checks import check_manifest, check_modules
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rank_errors import naming_rank
from helios.runtime.rank_group import RankGroup
from helios.runtime.selection import select
from helios.runtime.targets import ranks_by_manifest, read_manifests, read_modules


@dataclass(frozen=True)
class _Rank:
    resources: RankResources
    manifest: Manifest
    opening: DeviceOpening


def load_ranks(
    core: OpenedCore,
    target: str,
    ranks: Sequence[RankResources],
    *,
    options: DeviceOptions,
    capacities: Capacities,
    verify_weights: bool,
    devices: Sequence[Device] = (),
) -> RankGroup:
    """Loads each rank on a device of its own: the GPU of its number from `options.ordinal` on, or
    its part of the host's threads and memory; `devices` replaces them. Raises CoreError,
    ContractError or ExecutionError, naming the rank; nothing is then left behind."""
    phases = Phases()
    with phases("manifest"):
        manifests = read_manifests(core, ranks)
    if not devices:
        check_devices(target, options, len(ranks))
    opened: list[_Rank] = []
    waiting: list[Device] = []
    loaded: list[ModelRuntime] = []
    maps: dict[str, WeightMap] = {}
    try:
        with phases("checks"):
            for manifest, (number, *_) in ranks_by_manifest(manifests):
                with naming_rank(number):
                    check_manifest(manifest, core.contract)
        for number, (resources, manifest) in enumerate(zip(ranks, manifests, strict=True)):
            with naming_rank(number), phases("modules"):
                modules = read_modules(core, resources)
                check_modules(manifest, modules)
                own = options.of_rank(number, len(ranks))
                device = devices[number] if devices else None
                opening = DeviceOpening(target, own, manifest, modules, device)
            opened.append(_Rank(resources, manifest, opening))
        copied = not devices and manifests[0].cuda is not None  # to GPUs
        for number, rank in enumerate(opened):
            with naming_rank(number), phases("weights"):
                for name in rank.resources.weight_resources:
                    if name not in maps:
                        maps[name] = core.map_weights(name, verify=verify_weights, copied=copied)
        for number, rank in enumerate(opened):
            with naming_rank(number), phases("device"):
                waiting.append(rank.opening.take())
        memories = shared_memory([device.available_memory() for device in waiting])
        asked = agreed_capacities(core.contract, manifests, capacities, memories)
        for number, rank in enumerate(opened):
            names = rank.resources.weight_resources
            weights = {name: maps[name].content for name in names}
            device = waiting.pop(0)
            with naming_rank(number), closed_on_failure(device):
                loaded.append(
                    ModelRuntime(
                        core.contract,
                        rank.manifest,
                        weights,
                        device,
                        asked[number],
                        memory=memories[number],
                    )
                )
        return RankGroup(loaded, tuple(maps.values()), phases.ns)
    except BaseException:
        for rank in opened:
            rank.opening.abandon()
        for runtime in loaded:
            runtime.close()
        for one in waiting:
            one.close()
        for mapped in maps.values():
            mapped.close()
        raise


def shared_memory(memories: Sequence[AvailableMemory]) -> tuple[AvailableMemory, ...]:
    """What each rank can take: of the host, which is one for all, its part."""
    ranks = len(memories)
    return tuple(
        replace(one, nbytes=one.nbytes // ranks) if one.on_host else one for one in memories
    )


def agreed_capacities(
    contract: PreparedContract,
    manifests: Sequence[Manifest],
    asked: Capacities,
    memories: Sequence[AvailableMemory],
) -> tuple[Capacities, ...]:
    """What to ask of each rank so that all have the same pages and snapshots: as many as the rank
    with the least room. Sizes that were asked for are each rank's. Raises ContractError, naming
    the rank, where one has too little."""
    selections = []
    for number, (manifest, memory) in enumerate(zip(manifests, memories, strict=True)):
        with naming_rank(number):
            wanted = with_default_share(asked, memory)
            selections.append(select(contract, manifest, wanted, memory.nbytes))
    pages = min(selection.cache_pages for selection in selections)
    snapshots = min(selection.snapshots for selection in selections)
    return tuple(
        replace(
            asked,
            cache_share=None,
            cache_nbytes=pages * page_nbytes(manifest) + snapshots * selection.snapshot_nbytes,
            snapshot_rows=snapshots if selection.snapshot_nbytes else asked.snapshot_rows,
        )
        for manifest, selection in zip(manifests, selections, strict=True)
    )
