"""Kernels that put values from the host into device memory, one i32 at a time."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def scatter(rows, index, value, target, capacity, target_rows, BLOCK: tl.constexpr):
    """`target[index[i]] = value[i]` for the live i; of several with one index the last counts.

    A program has the targets of its own, in groups of 128, and walks all entries in order.
    """
    gdc_wait()
    gdc_launch_dependents()
    live = tl.minimum(tl.load(rows), capacity)
    offsets = tl.arange(0, BLOCK)
    for first in range(0, live, BLOCK):
        entry = first + offsets
        at = tl.load(index + entry, mask=entry < live, other=-1)
        # Whoever comes later in this block has the last word.
        same = at[:, None] == at[None, :]
        later = offsets[None, :] > offsets[:, None]
        last = tl.max((same & later).to(tl.int32), axis=1) == 0
        mine = at // 128 % tl.num_programs(0) == tl.program_id(0)
        inside = (at >= 0) & (at < target_rows)
        given = tl.load(value + entry, mask=entry < live, other=0)
        tl.store(target + at, given, mask=inside & mine & last)
        tl.debug_barrier()  # a later block's stores come after these
