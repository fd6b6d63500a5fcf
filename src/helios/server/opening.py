"""Opens the core in the HTTP process before the server says that it listens.

What an operator gets wrong most often (folder, namespace, key, capacities) is so refused at once
and in one line, without waiting for the worker. `server` calls it while the worker process starts;
everything else about the model is the worker's to find.
"""

from __future__ import annotations

from helios.core import OpenedCore, open_core
from helios.worker.options import WorkerOptions


def open_for_serving(options: WorkerOptions) -> OpenedCore:
    """The opened core. Raises CoreError for a core that can't be opened or isn't accepted,
    ContractError for capacities that it can't have."""
    core = open_core(options.core, accept=options.accept, publisher_key=options.publisher_key)
    if options.request_slots is not None or options.cache_nbytes is not None:
        _check_capacities(core, options)
    return core


def _check_capacities(core: OpenedCore, options: WorkerOptions) -> None:
    # Imported on use: only who asks for capacities pays for reading the manifest.
    from helios.runtime.capacities import choose_cache_pages, choose_request_slots
    from helios.runtime.targets import deployed_rank, read_manifest

    slots = choose_request_slots(core.contract, options.request_slots)
    if options.cache_nbytes is not None:
        manifest = read_manifest(core, deployed_rank(core, options.target))
        # What is available only matters where no size is asked for.
        choose_cache_pages(core.contract, manifest, slots, options.cache_nbytes, 0)
