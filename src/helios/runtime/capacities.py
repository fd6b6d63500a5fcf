"""Load-time choices of capacity: request slots, speculative width, cache pages, snapshots, and the
memory that they take.

Pure functions of contract, manifest and what the operator asked for; nothing is allocated. The
result becomes the runtime's geometry. Also used by inspection, before anything is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from helios.contract.fields import INT32_MAX, refuse
from helios.contract.model import PreparedContract
from helios.dataclass import dataclass
from helios.runtime.checks.storage import pages_for
from helios.runtime.device import AvailableMemory, MemoryPlan, PlannedBuffer
from helios.runtime.manifest import LeadingCount, Manifest
from helios.runtime.state_rows import rows_per_request
from helios.wording import counted, show_size

DEFAULT_CONTEXT_TOKENS: Final = 1024  # tokens a slot that the default cache holds
DEFAULT_MEMORY_SHARE: Final = 4  # the default cache takes at most 1/4 of the available memory
SNAPSHOTS_LIMIT: Final = 1 << 20
DEFAULT_SNAPSHOTS: Final = 2  # a slot, if the cache's memory allows it
MORE_MEMORY: Final = "Free some, use a device with more, or ask for fewer requests (--max-active)"
DEFAULT_SNAPSHOT_SHARE: Final = 4  # by default snapshots take at most 1/4 of the cache's memory


@dataclass(frozen=True, slots=True)
class Capacities:
    """What the operator asks for; None leaves the choice to the contract and the machine.

    The cache is given in bytes or as a share (0 to 1) of what is free beside everything else that
    the model takes, its weights included. `speculative_width` bounds the target tokens of a lane;
    0 is without speculation. `history_drafting` is for requests to draft from their own text.
    `snapshot_rows` counts snapshots, whose memory is part of the cache's.
    """

    request_slots: int | None = None
    cache_nbytes: int | None = None
    cache_share: float | None = None
    speculative_width: int | None = None
    history_drafting: bool = False
    snapshot_rows: int | None = None

    def __post_init__(self) -> None:
        if self.cache_share is None:
            return
        if self.cache_nbytes is not None:
            refuse("cache size", "is given in bytes and as a share", "Give one of them")
        if not 0 < self.cache_share <= 1:
            refuse("cache size", f"{self.cache_share} is no share of the free memory")


def least_cache(contract: PreparedContract, manifest: Manifest, snapshots: int) -> Capacities:
    """All captured concurrency over as little cache as there can be: one whole context and, where
    the core takes them, so many snapshots."""
    pages = pages_for(contract.max_context_tokens, contract.model.cache.page_tokens)
    snapshot = state_row_nbytes(manifest) * rows_per_request(contract, manifest.programs)
    taken = snapshots if snapshot else 0
    return Capacities(
        cache_nbytes=pages * page_nbytes(manifest) + taken * snapshot, snapshot_rows=taken
    )


def choose_request_slots(contract: PreparedContract, asked: int | None) -> int:
    """The captured concurrency, or the lower one that was asked for."""
    if asked is None:
        return contract.max_active
    if not 1 <= asked <= contract.max_active:
        refuse(
            "request slots",
            f"{asked} asked for, but the core is prepared for 1 to {contract.max_active}",
            "Ask for fewer, or prepare the core for more",
        )
    return asked


def choose_speculative_width(contract: PreparedContract, asked: int | None) -> int:
    """The widest captured speculation, or the widest that what was asked for allows; 0 is none."""
    widths = contract.speculative_widths
    if asked == 0 or (asked is None and not widths):
        return 0
    if asked is None:
        return widths[-1]
    if not widths:
        refuse(
            "speculative width",
            f"{asked} asked for, but the core is prepared without speculation",
            "Leave it out, or prepare the core with speculative programs",
        )
    if not widths[0] <= asked <= widths[-1]:
        refuse(
            "speculative width",
            f"{asked} asked for, but the core is prepared for {', '.join(map(str, widths))}",
            "Ask for one of these, or for 0",
        )
    return max(width for width in widths if width <= asked)


def page_nbytes(manifest: Manifest) -> int:
    """Bytes of one page over all cache planes."""
    return sum(
        buffer.nbytes for buffer in manifest.buffers if buffer.leading is LeadingCount.CACHE_PAGES
    )


def state_row_nbytes(manifest: Manifest) -> int:
    """Bytes of one state row over all buffers that have such rows."""
    return sum(
        buffer.nbytes for buffer in manifest.buffers if buffer.leading is LeadingCount.SNAPSHOT_ROWS
    )


def beside_cache_nbytes(manifest: Manifest, request_slots: int, rows_per_request: int = 1) -> int:
    """Bytes of everything but the cache's pages and snapshots: both frames, the arena, the weights
    as stored, the live state rows of every slot."""
    live = request_slots * rows_per_request
    counts = {
        LeadingCount.REQUEST_SLOTS: request_slots,
        LeadingCount.CACHE_PAGES: 1,
        LeadingCount.SNAPSHOT_ROWS: live,
    }
    taken = plan_memory(manifest, counts).nbytes_by_class()
    return sum(taken.values()) - page_nbytes(manifest)


def choose_snapshots(
    contract: PreparedContract,
    manifest: Manifest,
    request_slots: int,
    asked: Capacities,
    available_nbytes: int,
    free_nbytes: int,
    snapshot_nbytes: int,
) -> int:
    """Snapshots of so many bytes: those asked for, or by default `DEFAULT_SNAPSHOTS` a slot as far
    as a share of the cache's memory holds them and one whole context beside them. 0 bytes: the
    core takes none."""
    if not snapshot_nbytes:
        if asked.snapshot_rows:
            refuse(
                "snapshots",
                f"{asked.snapshot_rows} asked for, but the core is prepared without",
                "Leave it out, or prepare the core with programs that restore",
            )
        return 0
    if asked.snapshot_rows is not None:
        if not 0 <= asked.snapshot_rows <= SNAPSHOTS_LIMIT:
            refuse("snapshots", f"{asked.snapshot_rows} asked for, 0 to {SNAPSHOTS_LIMIT} can be")
        return asked.snapshot_rows
    budget = _cache_budget(asked, free_nbytes)
    if budget is None:
        budget = available_nbytes // DEFAULT_MEMORY_SHARE
    one_context = pages_for(contract.max_context_tokens, contract.model.cache.page_tokens)
    spare = max(budget - one_context * page_nbytes(manifest), 0)
    most = min(spare, budget // DEFAULT_SNAPSHOT_SHARE) // snapshot_nbytes
    return min(DEFAULT_SNAPSHOTS * request_slots, most)


def choose_cache_pages(
    contract: PreparedContract,
    manifest: Manifest,
    request_slots: int,
    asked: Capacities,
    available_nbytes: int,
    free_nbytes: int,
    snapshots_nbytes: int = 0,
) -> int:
    """Pages that fit what was asked for beside `snapshots_nbytes`, or by default
    `DEFAULT_CONTEXT_TOKENS` a slot within the machine's share; always at least one whole context.
    A share that was asked for is one of `free_nbytes`, what the rest of the model leaves of
    `available_nbytes`."""
    page_tokens = contract.model.cache.page_tokens
    one_context = pages_for(contract.max_context_tokens, page_tokens)
    nbytes = page_nbytes(manifest)
    if nbytes == 0:
        return one_context * request_slots
    budget = _cache_budget(asked, free_nbytes)
    if budget is None:
        tokens = min(contract.max_context_tokens, DEFAULT_CONTEXT_TOKENS)
        wanted = request_slots * pages_for(tokens, page_tokens)
        share = (available_nbytes // DEFAULT_MEMORY_SHARE - snapshots_nbytes) // nbytes
        return max(one_context, min(wanted, share))
    pages = min((budget - snapshots_nbytes) // nbytes, INT32_MAX)
    least_nbytes = one_context * nbytes + snapshots_nbytes
    if pages < one_context and asked.cache_share is not None and free_nbytes < least_nbytes:
        # No share of so little would do.
        taken = available_nbytes - free_nbytes
        refuse(
            "memory",
            f"the model takes {show_size(taken)}, its weights included, and one context of"
            f" {contract.max_context_tokens} tokens {show_size(least_nbytes)} of cache:"
            f" {show_size(taken + least_nbytes)} in all; {show_size(available_nbytes)} are free",
            MORE_MEMORY,
        )
    if pages < one_context:
        beside = f" beside {show_size(snapshots_nbytes)} of snapshots" if snapshots_nbytes else ""
        refuse(
            "cache size",
            f"{show_size(budget)} hold {counted(max(pages, 0), 'page')}{beside}, but one context of"
            f" {contract.max_context_tokens} tokens takes {counted(one_context, 'page')}",
            f"Ask for {-(-least_nbytes >> 20)} MiB or more",
        )
    return pages


def _cache_budget(asked: Capacities, free_nbytes: int) -> int | None:
    """Bytes that the operator gives the cache; None without a word."""
    if asked.cache_share is not None:
        return int(asked.cache_share * max(free_nbytes, 0))
    return asked.cache_nbytes


def plan_memory(manifest: Manifest, counts: Mapping[LeadingCount, int]) -> MemoryPlan:
    """Every buffer with its counts resolved, in exact integers; nothing is allocated."""
    planned = []
    for index, buffer in enumerate(manifest.buffers):
        if buffer.leading is LeadingCount.FIXED:
            planned.append(PlannedBuffer(buffer, buffer.shape, buffer.nbytes))
            continue
        count = counts.get(buffer.leading, 0)
        if count < 1:
            refuse(f"buffers[{index}].leading", f"this Helios backs no {buffer.leading.name} yet")
        planned.append(PlannedBuffer(buffer, (count, *buffer.shape), count * buffer.nbytes))
    return MemoryPlan(tuple(planned), dict(counts), manifest.workspace_nbytes)


def with_default_share(asked: Capacities, memory: AvailableMemory) -> Capacities:
    """What is asked for, with the device's own share for the cache where nobody named a size."""
    if memory.cache_share is None or asked.cache_nbytes is not None or asked.cache_share:
        return asked
    return replace(asked, cache_share=memory.cache_share)


def host_memory() -> AvailableMemory:
    """What devices that compute on the host have."""
    return AvailableMemory(available_nbytes(), on_host=True)


def available_nbytes() -> int:
    """Bytes that this process could still take: the machine's, or its control group's if less."""
    available = _meminfo_nbytes(Path("/proc/meminfo"))
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text())
        current = int((group / "memory.current").read_text())
    except (OSError, ValueError):  # no control group, or one without a limit
        return available
    return min(available, max(limit - current, 0))


def _meminfo_nbytes(path: Path) -> int:
    for line in path.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{path} doesn't say how much memory is available")
