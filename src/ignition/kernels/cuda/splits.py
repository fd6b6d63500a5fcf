"""Splits of a row's context that several CTAs share: which are whose, and their results.

A split's result is kept in scratch: maximum, sum and weighted values of each query head, f32. Who
folds them does it in ascending order, so that it doesn't matter who attended to which.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ignition.kernels.cuda.attention_blocks import empty, fold
from ignition.kernels.cuda.prefetch import bring_blocks


@triton.jit
def context(
    last, slot, table_pages, slot_count, PAGE: tl.constexpr, SPLIT: tl.constexpr,
    WINDOW: tl.constexpr,
):  # fmt: skip
    """End and oldest token of what a row at position `last` sees, its first split and the one
    after its last: one split at least, which for an inert row is empty."""
    end = tl.minimum(last + 1, table_pages * PAGE)
    if (slot < 0) | (slot >= slot_count):
        end = 0
    oldest = 0
    if WINDOW > 0:
        oldest = tl.maximum(end - WINDOW, 0)
    first_split = oldest // SPLIT
    return end, oldest, first_split, tl.maximum(tl.cdiv(end, SPLIT), first_split + 1)


@triton.jit
def run_of(
    end, oldest, first_split, splits, PAGE: tl.constexpr, SPLIT: tl.constexpr
):  # fmt: skip
    """How many splits each worker of a row takes; this one's first key, the one after its last,
    and the first key of its last page. Workers are the grid's second axis."""
    run = tl.cdiv(splits - first_split, tl.num_programs(1))
    first = first_split + tl.program_id(1) * run
    begin = tl.maximum(first * SPLIT, oldest // PAGE * PAGE)
    stop = tl.minimum((first + run) * SPLIT, end)
    return run, begin, stop, tl.maximum(begin, (tl.cdiv(stop, PAGE) - 1) * PAGE)


@triton.jit
def bring_pages(
    key_plane, value_plane, table, begin, stop, final, taken, pages, head, KV_HEADS: tl.constexpr,
    D: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """Brings a run's last page and the first ones before it into the L2 cache. Returns the last
    one's block of both planes, and whether there is one; 128 threads."""
    ahead = begin // PAGE + tl.arange(0, 128) // 32
    known = taken & (ahead * PAGE < final)
    found = tl.load(table + ahead, mask=known, other=0).to(tl.int64)
    there = taken & (final < stop)
    page = tl.load(table + final // PAGE, mask=there, other=-1).to(tl.int64)
    there &= (page >= 0) & (page < pages)
    block = page * KV_HEADS + head
    a_warp = there & (tl.arange(0, 128) < 32)
    blocks = block + tl.zeros((128,), tl.int64)
    bring_blocks(key_plane, blocks, a_warp, 2 * PAGE * D)
    bring_blocks(value_plane, blocks, a_warp, 2 * PAGE * D)
    known &= (found >= 0) & (found < pages)
    bring_blocks(key_plane, found * KV_HEADS + head, known, 2 * PAGE * D)
    bring_blocks(value_plane, found * KV_HEADS + head, known, 2 * PAGE * D)
    return block, there


@triton.jit
def keep(to, maximum, total, mixed, live, ROWS: tl.constexpr, D: tl.constexpr):
    """Stores a split's result."""
    to += tl.arange(0, ROWS) * (D + 2)
    tl.store(to, maximum, mask=live)
    tl.store(to + 1, total, mask=live)
    tl.store(to[:, None] + 2 + tl.arange(0, D)[None, :], mixed, mask=live[:, None])


@triton.jit
def fold_kept(kept, splits, live, GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr):
    """Sum and weighted values of kept splits, folded in ascending order."""
    maximum, total, mixed = empty(ROWS, D)
    row = kept + tl.arange(0, ROWS) * (D + 2)
    column = tl.arange(0, D)[None, :]
    for _ in range(splits):
        maximum, total, mixed = fold(
            maximum, total, mixed,
            tl.load(row, mask=live, other=0.0),
            tl.load(row + 1, mask=live, other=0.0),
            tl.load(row[:, None] + 2 + column, mask=live[:, None], other=0.0),
        )  # fmt: skip
        row += GROUP * (D + 2)
    return total, mixed
