"""Whether what was selected fits into a device's memory, and what to ask for where it doesn't.

Asked before anything is allocated: of the host's memory an allocation could succeed and fail only
when it is touched. `ModelRuntime` is the caller, and a server before it starts a worker.
"""

from __future__ import annotations

from helios.contract.fields import refuse
from helios.runtime.capacities import MORE_MEMORY, Capacities
from helios.runtime.manifest import BufferClass
from helios.runtime.selection import Selection
from helios.wording import show_size


def check_fits(
    selection: Selection, available_nbytes: int, asked: Capacities, *, holds_weights: bool = False
) -> None:
    """Refuses a selection whose allocations (everything but the weights, where they are used in
    place) are more than so much memory. A cache that was asked for pays for its pages and
    snapshots; live state rows lie in the same buffers and are the model's."""
    owned = sum(
        nbytes
        for kind, nbytes in selection.plan.nbytes_by_class().items()
        if holds_weights or kind is not BufferClass.WEIGHT
    )
    if owned <= available_nbytes:
        return
    with_weights = "with" if holds_weights else "beside"
    beside = owned - selection.cache_nbytes
    left = available_nbytes - beside
    least = selection.least_cache_nbytes
    if left < least:
        refuse(
            "memory",
            f"the model takes {show_size(beside)} {with_weights} its weights, and"
            f" {show_size(least)} of cache at the least: {show_size(beside + least)} in all;"
            f" {show_size(available_nbytes)} are available",
            MORE_MEMORY,
        )
    if asked.cache_nbytes is not None and left >> 20 << 20 >= max(least, 1):
        refuse(
            "cache size",
            f"{show_size(asked.cache_nbytes)} asked for, but of the"
            f" {show_size(available_nbytes)} of memory that are available the model leaves"
            f" {show_size(left)}",
            f"Ask for {left >> 20} MiB or less, or for a share of it, like --cache-memory 50%",
        )
    refuse(
        "memory",
        f"the model takes {show_size(owned)} {with_weights} its weights,"
        f" {show_size(available_nbytes)} are available",
        "Ask for fewer request slots or a smaller cache",
    )
