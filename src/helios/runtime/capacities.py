"""Load-time choices of capacity: request slots, cache pages, and the memory that they take.

Pure functions of contract, manifest and what the operator asked for; nothing is allocated. The
result becomes the runtime's geometry. Also used by inspection, before anything is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from helios.contract.fields import INT32_MAX, refuse
from helios.contract.model import PreparedContract
from helios.runtime.checks.storage import pages_for
from helios.runtime.device import MemoryPlan, PlannedBuffer
from helios.runtime.manifest import BufferClass, LeadingCount, Manifest

DEFAULT_CONTEXT_TOKENS: Final = 1024  # tokens a slot that the default cache holds
DEFAULT_MEMORY_SHARE: Final = 4  # the default cache takes at most 1/4 of the available memory


@dataclass(frozen=True, slots=True)
class Capacities:
    """What the operator asks for; None leaves the choice to the contract and the machine."""

    request_slots: int | None = None
    cache_nbytes: int | None = None


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


def page_nbytes(manifest: Manifest) -> int:
    """Bytes of one page over all cache planes."""
    return sum(
        buffer.nbytes for buffer in manifest.buffers if buffer.leading is LeadingCount.CACHE_PAGES
    )


def choose_cache_pages(
    contract: PreparedContract,
    manifest: Manifest,
    request_slots: int,
    asked_nbytes: int | None,
    available_nbytes: int,
) -> int:
    """Pages that fit what was asked for, or by default `DEFAULT_CONTEXT_TOKENS` a slot within
    the machine's share; always at least one whole context."""
    page_tokens = contract.model.cache.page_tokens
    one_context = pages_for(contract.max_context_tokens, page_tokens)
    nbytes = page_nbytes(manifest)
    if nbytes == 0:
        return one_context * request_slots
    if asked_nbytes is None:
        tokens = min(contract.max_context_tokens, DEFAULT_CONTEXT_TOKENS)
        wanted = request_slots * pages_for(tokens, page_tokens)
        share = available_nbytes // DEFAULT_MEMORY_SHARE // nbytes
        return max(one_context, min(wanted, share))
    pages = min(asked_nbytes // nbytes, INT32_MAX)
    if pages < one_context:
        refuse(
            "cache size",
            f"{asked_nbytes} bytes hold {max(pages, 0)} pages, but one context of"
            f" {contract.max_context_tokens} tokens takes {one_context} pages"
            f" ({one_context * nbytes} bytes)",
            "Ask for a larger cache",
        )
    return pages


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


def check_fits(plan: MemoryPlan, available_nbytes: int) -> None:
    """Refuses a plan whose allocations (everything but the weights, which are used in place) the
    machine doesn't have: mapping them could succeed and fail only when they are touched."""
    owned = sum(
        nbytes for kind, nbytes in plan.nbytes_by_class().items() if kind is not BufferClass.WEIGHT
    )
    if owned > available_nbytes:
        refuse(
            "memory",
            f"the model takes {owned} bytes beside its weights, {available_nbytes} are available",
            "Ask for fewer request slots or a smaller cache",
        )


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
