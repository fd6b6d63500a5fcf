"""Opens the core in the HTTP process before the server says that it listens.

What an operator gets wrong most often (folder, namespace, key, capacities,
prompt cache) is so refused at once
and in one line, without waiting for the worker. `server` calls it while the worker process starts;
everything else about the model is the worker's to find.
"""

from __future__ import annotations

from helios.core import OpenedCore
from helios.worker.options import WorkerOptions
from helios.worker.served_core import asked_capacities, open_served_core, prepare_prompt_cache


def open_for_serving(options: WorkerOptions) -> OpenedCore:
    """The opened core. Raises CoreError for a core that can't be opened or isn't accepted,
    ContractError for capacities that it can't have, HeliosError for a prompt cache that can't be
    kept."""
    core = open_served_core(options)
    prepare_prompt_cache(options)
    if options.asks_for_capacities:
        _check_capacities(core, options)
    return core


def _check_capacities(core: OpenedCore, options: WorkerOptions) -> None:
    # Imported on use: only who asks for capacities pays for it.
    from helios.runtime.capacities import (
        Capacities,
        available_nbytes,
        choose_request_slots,
    )

    asked = asked_capacities(options)
    choose_request_slots(core.contract, asked.request_slots)
    if asked == Capacities(request_slots=asked.request_slots):
        return
    # Only who asks for more than slots pays for reading the manifest.
    from helios.runtime.memory_fit import check_fits
    from helios.runtime.selection import refuse_unsupported, select
    from helios.runtime.targets import (
        CUDA,
        choose_target,
        deployed_ranks,
        ranks_by_manifest,
        read_manifests,
    )

    target = choose_target(core, options.target)
    if target.startswith(f"{CUDA}:"):
        return  # the GPU's memory is the worker's to ask for
    manifests = read_manifests(core, deployed_ranks(core, target))
    available = available_nbytes() // len(manifests)
    for manifest, _ in ranks_by_manifest(manifests):
        selection = select(core.contract, manifest, asked, available)
        refuse_unsupported(selection.programs)
        check_fits(selection, available, asked)
