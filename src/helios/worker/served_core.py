"""What worker options say of a core: opens the one that they name, and what they ask for beside it,
capacities and a folder for what prompts leave. For the worker, for the frontend beside it, and for
the commands that look at a core."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from helios.core import OpenedCore, open_core
from helios.core.cache import ResourceCache
from helios.worker.options import PROMPT_CACHE, WorkerOptions

if TYPE_CHECKING:
    from helios.runtime.capacities import Capacities


def open_served_core(options: WorkerOptions) -> OpenedCore:
    """The core, with the keys that the options name. Raises CoreError or ContractError."""
    core_key = None
    if options.core_key is not None:
        # Imported on use: few cores are sealed.
        from helios.core.sealed import read_core_key

        core_key = read_core_key(Path(options.core_key))
    return open_core(
        options.core,
        accept=options.accept,
        publisher_key=options.publisher_key,
        allow_unknown_publisher=options.allow_unknown_publisher,
        cache=ResourceCache(
            None if options.cache_dir is None else Path(options.cache_dir),
            allow_private_mirrors=options.allow_private_mirrors,
            mirror_timeout_s=options.mirror_timeout_s,
        ),
        core_key=core_key,
    )


def prepare_prompt_cache(options: WorkerOptions) -> None:
    """Makes the folder of the prompt cache, where one is asked for. Raises HeliosError for one
    that can't be used or that other users may write to."""
    if options.prompt_cache is not None:
        # Imported on use, as below.
        from helios.scheduler.cache.offload.private_folder import prepare_folder

        prepare_folder(Path(options.prompt_cache), PROMPT_CACHE)


def asked_capacities(options: WorkerOptions) -> Capacities:
    """What the options say of capacities. Raises ContractError where they contradict."""
    # Imported on use: who only opens the core doesn't wait for it.
    from helios.runtime.capacities import Capacities

    return Capacities(
        request_slots=options.request_slots,
        cache_nbytes=options.cache_nbytes,
        cache_share=options.cache_share,
        speculative_width=options.speculative_width,
        history_drafting=options.history_drafting,
        snapshot_rows=options.snapshots,
    )
