"""Paged attention of rows that are requests of their own: one query token each.

A row's splits are shared out among several CTAs, and whoever ends last folds them, ascending. The
order and the buffers are those of `attention`. Rotated queries and a cache that holds the row's own
key and value come from the launch before; `rotated_decode` is the same without that launch.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ignition.kernels.cuda.attention_blocks import (
    block_page,
    empty,
    fold,
    fold_block,
    fold_loaded_block,
    normalised,
)
from ignition.kernels.cuda.splits import bring_pages, context, fold_kept, keep, run_of


@triton.jit
def attend_decode(
    rows, q, keys, values, positions, slots, page_table, out, key_plane, value_plane, partials,
    arrivals, table_pages, slot_count, pages, scale_log2, Q_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, SPLIT: tl.constexpr,
    WINDOW: tl.constexpr, ROWS: tl.constexpr, HEIGHT: tl.constexpr, ALONE: tl.constexpr,
    SETTLED: tl.constexpr,
):  # fmt: skip
    """Grid (KV_HEADS, workers, capacity): a worker takes an equal run of its row's splits. The
    planes are those that `keys` and `values` map. Scratch and constants as in `attend_run`.

    `SETTLED`: live rows, positions, slots and page table are older than the launch before this one.
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
    run, begin, stop, final = run_of(end, oldest, first_split, splits, PAGE, SPLIT)
    taken = (lane < live_rows) & (tl.program_id(1) * run < splits - first_split)
    table = page_table + slot * table_pages
    block, there = bring_pages(
        key_plane, value_plane, table, begin, stop, final, taken, pages, head, KV_HEADS, D, PAGE
    )
    if SETTLED:
        gdc_wait()
    gdc_launch_dependents()
    if taken:
        row = tl.arange(0, ROWS)
        column = tl.arange(0, D)[None, :]
        at = q + (lane * Q_HEADS + head * GROUP + row)[:, None] * D + column
        attend_run(
            tl.load(at, mask=(row < GROUP)[:, None], other=0.0), keys, values, key_plane,
            value_plane, block, there, 0.0, 0.0, -1, table, last, oldest, end, first_split, splits,
            run, begin, stop, final, out, partials, arrivals, table_pages, scale_log2, Q_HEADS,
            KV_HEADS, D, PAGE, SPLIT, WINDOW, ROWS, HEIGHT, ALONE, False,
        )  # fmt: skip


@triton.jit
def attend_run(
    rotated, keys, values, key_plane, value_plane, block, there, new_key, new_value, newest, table,
    last, oldest, end, first_split, splits, run, begin, stop, final, out, partials, arrivals,
    table_pages, scale_log2, Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr,
    PAGE: tl.constexpr, SPLIT: tl.constexpr, WINDOW: tl.constexpr, ROWS: tl.constexpr,
    HEIGHT: tl.constexpr, ALONE: tl.constexpr, NEW: tl.constexpr,
):  # fmt: skip
    """Attends to a worker's run of splits, and stores a row's result if it is the last to end.

    `block`, where it is `there`, is what the last page has in both planes; with `NEW` the cell of
    token `newest` in it isn't written yet, and will hold `new_key` and `new_value` [1, D]. HEIGHT:
    the power of two at or above the query heads of a key head.

    Scratch: `partials` f32 [capacity, KV_HEADS, splits of the longest context, G, D + 2] with G
    query heads a key head; `arrivals` i32 [capacity, KV_HEADS], zero before and after a launch. A
    row with one worker can do without (`ALONE`), at the price of a second accumulator.
    """
    GROUP: tl.constexpr = Q_HEADS // KV_HEADS
    head = tl.program_id(0)
    lane = tl.program_id(2)
    row = tl.arange(0, ROWS)
    live = row < GROUP
    column = tl.arange(0, D)[None, :]
    several = splits - first_split > 1
    position = tl.full((ROWS,), 0, tl.int32) + last
    size: tl.constexpr = GROUP * (D + 2)
    longest = tl.cdiv(table_pages * PAGE, SPLIT)
    kept = partials + (lane * KV_HEADS + head).to(tl.int64) * longest * size
    first_head = lane * Q_HEADS + head * GROUP
    maximum, total, mixed = empty(ROWS, D)
    if ALONE:
        all_maximum, all_total, all_mixed = empty(ROWS, D)
    page = block_page(table, begin, final, PAGE)
    # Without a window only the last page has tokens that are hidden from the row.
    for key in range(begin, final, PAGE):
        next_page = block_page(table, key + PAGE, final, PAGE)
        maximum, total, mixed = fold_block(
            rotated, keys, values, page, key, oldest, end, position, head,
            maximum, total, mixed, scale_log2, KV_HEADS, PAGE, WINDOW, WINDOW > 0,
        )  # fmt: skip
        page = next_page
        if (key + PAGE) % SPLIT == 0:
            if ALONE:
                all_maximum, all_total, all_mixed = fold(
                    all_maximum, all_total, all_mixed, maximum, total, mixed
                )
            else:
                keep(kept + key // SPLIT * size, maximum, total, mixed, live, ROWS, D)
            maximum, total, mixed = empty(ROWS, D)
    if final < stop:
        cells = (block * PAGE + tl.arange(0, PAGE))[:, None] * D + column
        key_block = tl.load(key_plane + cells, mask=there, other=0.0)
        value_block = tl.load(value_plane + cells, mask=there, other=0.0)
        if NEW:
            here = (final + tl.arange(0, PAGE) == newest)[:, None]
            key_block = tl.where(here, new_key, key_block)
            value_block = tl.where(here, new_value, value_block)
        maximum, total, mixed = fold_loaded_block(
            rotated, key_block, value_block, final, oldest, end, position,
            maximum, total, mixed, scale_log2, PAGE, WINDOW,
        )  # fmt: skip
        if several:
            if ALONE:
                all_maximum, all_total, all_mixed = fold(
                    all_maximum, all_total, all_mixed, maximum, total, mixed
                )
            else:
                keep(kept + final // SPLIT * size, maximum, total, mixed, live, ROWS, D)
    if ALONE:  # noqa: SIM102 (one of the two is known to the compiler)
        if several:
            total = all_total
            mixed = all_mixed
    if several & (not ALONE):
        counter = arrivals + lane * KV_HEADS + head
        tl.debug_barrier()  # every thread's results are stored before arriving
        active = tl.cdiv(splits - first_split, run)
        if tl.atomic_add(counter, 1, sem="acq_rel") == active - 1:
            query = tl.arange(0, HEIGHT)
            few_total, few_mixed = fold_kept(
                kept + first_split * size, splits - first_split, query < GROUP, GROUP, HEIGHT, D
            )  # fmt: skip
            tl.store(counter, 0)
            to = out + (first_head + query)[:, None] * D + column
            few_result = normalised(few_total, few_mixed).to(out.dtype.element_ty)
            tl.store(to, few_result, mask=(query < GROUP)[:, None])
    else:
        # Folding one split into nothing changes nothing.
        to = out + (first_head + row)[:, None] * D + column
        result = normalised(total, mixed).to(out.dtype.element_ty)
        tl.store(to, result, mask=live[:, None])
