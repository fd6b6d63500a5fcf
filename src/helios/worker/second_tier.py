"""The prefix cache's second tier as worker options ask for it: what can't be had is refused by the
option's name, the rest is opened over the loaded runtime.

Called by `startup`, which imports it where a second tier is asked for.
"""

from __future__ import annotations

from pathlib import Path

from helios.errors import ContractError, HeliosError
from helios.runtime.served import ServedRuntime
from helios.scheduler import can_reuse
from helios.scheduler.cache.offload import Offload, TierOptions, open_second_tier
from helios.scheduler.cache.offload.file_format import HEADER_NBYTES
from helios.scheduler.cache.offload.host_tier import ENTRY_NBYTES
from helios.scheduler.cache.offload.opening import FOLDER_NBYTES
from helios.wording import show_size
from helios.worker.options import (
    OFFLOAD_MEMORY,
    PROMPT_CACHE,
    PROMPT_CACHE_SIZE,
    WorkerOptions,
)


def open_tier(options: WorkerOptions, core_digest: str, runtime: ServedRuntime) -> Offload | None:
    """The tier, to be closed before the runtime; None where none is asked for. `core_digest` is the
    hex digest of the opened core. Raises ContractError where the core can't reuse anything,
    HeliosError for sizes that hold nothing."""
    if not options.asks_for_second_tier:
        return None
    if not can_reuse(runtime.geometry):
        raise ContractError(
            "no request of this core can begin from what another one has left",
            where=PROMPT_CACHE if options.prompt_cache is not None else OFFLOAD_MEMORY,
            remedy="Leave it out, or prepare the core anew",
        )
    content = runtime.cache_content
    most = max(content.page_nbytes, content.snapshot_nbytes)
    asked = tier_options(options)
    if asked.host_nbytes:
        _check_size(asked.host_nbytes, most + ENTRY_NBYTES, OFFLOAD_MEMORY)
    if asked.folder is not None:
        _check_size(asked.folder_nbytes, most + HEADER_NBYTES, PROMPT_CACHE_SIZE)
    return open_second_tier(content, runtime.geometry, core_digest, asked)


def tier_options(options: WorkerOptions) -> TierOptions:
    """What the worker's options say of the tier."""
    nbytes = options.prompt_cache_nbytes
    return TierOptions(
        options.offload_nbytes,
        None if options.prompt_cache is None else Path(options.prompt_cache),
        FOLDER_NBYTES if nbytes is None else nbytes,
    )


def _check_size(nbytes: int, least: int, where: str) -> None:
    if nbytes < least:
        raise HeliosError(
            f"{show_size(nbytes)} hold not even one page, which takes {show_size(least)}",
            where=where,
            remedy="Give it more",
        )
