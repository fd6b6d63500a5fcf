"""Paged attention of rows that are requests of their own: one query token each.

A row's splits are shared out among several CTAs, and whoever ends last folds them, ascending; with
one CTA a row (`ALONE`) it folds them as they end. The order and the buffers are those of
`attention`. Rotated queries and a cache that holds the row's own key and value come from the launch
before; `rotated_decode` is the same without that launch.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ignition.kernels.cuda.attention_blocks import block_page, empty, fold, fold_block, normalised
from ignition.kernels.cuda.splits import context, fold_kept, keep


@triton.jit
def attend_decode(
    rows, q, keys, values, positions, slots, page_table, out, partials, arrivals, table_pages,
    slot_count, scale_log2, Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr,
    PAGE: tl.constexpr, SPLIT: tl.constexpr, WINDOW: tl.constexpr,
    ROWS: tl.constexpr, ALONE: tl.constexpr, SETTLED: tl.constexpr,
):  # fmt: skip
    """Grid (KV_HEADS, workers, capacity): a worker takes an equal run of its row's splits.

    Scratch: `partials` f32 [capacity, KV_HEADS, splits of the longest context, G, D + 2] with G
    query heads a key head; `arrivals` i32 [capacity, KV_HEADS], zero before and after a launch.
    With one worker (`ALONE`) neither is touched. `SETTLED`: live rows, positions, slots and page
    table are older than the launch before this one.
    """
    GROUP: tl.constexpr = Q_HEADS // KV_HEADS
    head = tl.program_id(0)
    lane = tl.program_id(2)
    if not SETTLED:
        gdc_wait()
    live_rows = tl.load(rows)
    last = tl.load(positions + lane)
    slot = tl.load(slots + lane).to(tl.int64)
    end, oldest, first_split, splits = context(
        last, slot, table_pages, slot_count, PAGE, SPLIT, WINDOW
    )
    run = tl.cdiv(splits - first_split, tl.num_programs(1))
    if SETTLED:
        gdc_wait()
    if (lane < live_rows) & (tl.program_id(1) * run < splits - first_split):
        row = tl.arange(0, ROWS)
        at = (lane * Q_HEADS + head * GROUP + row)[:, None] * D + tl.arange(0, D)[None, :]
        rotated = tl.load(q + at, mask=(row < GROUP)[:, None], other=0.0)
        table = page_table + slot * table_pages
        total, mixed, mine = _attended(
            rotated, keys, values, table, last, oldest, end, first_split, splits, run, partials,
            arrivals, table_pages, scale_log2, Q_HEADS, KV_HEADS, D, PAGE, SPLIT, WINDOW, ROWS,
            ALONE,
        )  # fmt: skip
        if mine:
            result = normalised(total, mixed).to(out.dtype.element_ty)
            tl.store(out + at, result, mask=(row < GROUP)[:, None])


@triton.jit
def _attended(
    rotated, keys, values, table, last, oldest, end, first_split, splits, run, partials, arrivals,
    table_pages, scale_log2, Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr,
    PAGE: tl.constexpr, SPLIT: tl.constexpr, WINDOW: tl.constexpr, ROWS: tl.constexpr,
    ALONE: tl.constexpr,
):  # fmt: skip
    """Sum and weighted values of a row's queries, and whether they are this CTA's to store."""
    GROUP: tl.constexpr = Q_HEADS // KV_HEADS
    head = tl.program_id(0)
    worker = tl.program_id(1)
    lane = tl.program_id(2)
    live = tl.arange(0, ROWS) < GROUP
    several = splits - first_split > 1
    position = tl.full((ROWS,), 0, tl.int32) + last
    size: tl.constexpr = GROUP * (D + 2)
    longest = tl.cdiv(table_pages * PAGE, SPLIT)
    kept = partials + (lane * KV_HEADS + head).to(tl.int64) * longest * size
    begin = tl.maximum((first_split + worker * run) * SPLIT, oldest // PAGE * PAGE)
    stop = tl.minimum((first_split + worker * run + run) * SPLIT, end)
    maximum, total, mixed = empty(ROWS, D)
    if ALONE:
        all_maximum, all_total, all_mixed = empty(ROWS, D)
    page = block_page(table, begin, end, PAGE)
    whole = begin
    if WINDOW == 0:
        # Pages without a token that is hidden from the row.
        whole = tl.maximum(tl.minimum(stop, end // PAGE * PAGE), begin)
    for key in range(begin, whole, PAGE):
        next_page = block_page(table, key + PAGE, end, PAGE)
        maximum, total, mixed = fold_block(
            rotated, keys, values, page, key, oldest, end, position, head,
            maximum, total, mixed, scale_log2, KV_HEADS, PAGE, WINDOW, False,
        )  # fmt: skip
        page = next_page
        if ALONE:
            if ((key + PAGE) % SPLIT == 0) | (key + PAGE >= stop):
                all_maximum, all_total, all_mixed = fold(
                    all_maximum, all_total, all_mixed, maximum, total, mixed
                )
                maximum, total, mixed = empty(ROWS, D)
        elif (((key + PAGE) % SPLIT == 0) | (key + PAGE >= stop)) & several:
            keep(kept + key // SPLIT * size, maximum, total, mixed, live, ROWS, D)
            maximum, total, mixed = empty(ROWS, D)
    for key in range(whole, stop, PAGE):
        next_page = block_page(table, key + PAGE, end, PAGE)
        maximum, total, mixed = fold_block(
            rotated, keys, values, page, key, oldest, end, position, head,
            maximum, total, mixed, scale_log2, KV_HEADS, PAGE, WINDOW, True,
        )  # fmt: skip
        page = next_page
        if ALONE:
            if ((key + PAGE) % SPLIT == 0) | (key + PAGE >= stop):
                all_maximum, all_total, all_mixed = fold(
                    all_maximum, all_total, all_mixed, maximum, total, mixed
                )
                maximum, total, mixed = empty(ROWS, D)
        elif (((key + PAGE) % SPLIT == 0) | (key + PAGE >= stop)) & several:
            keep(kept + key // SPLIT * size, maximum, total, mixed, live, ROWS, D)
            maximum, total, mixed = empty(ROWS, D)
    gdc_launch_dependents()
    mine = True
    if ALONE:
        total = all_total
        mixed = all_mixed
    else:
        # Folding one split into nothing changes nothing.
        if several:
            counter = arrivals + lane * KV_HEADS + head
            tl.debug_barrier()  # every thread's results are stored before arriving
            active = tl.cdiv(splits - first_split, run)
            mine = tl.atomic_add(counter, 1, sem="acq_rel") == active - 1
            if mine:
                first = kept + first_split * size
                total, mixed = fold_kept(first, splits - first_split, live, GROUP, ROWS, D)
                tl.store(counter, 0)
    return total, mixed, mine
