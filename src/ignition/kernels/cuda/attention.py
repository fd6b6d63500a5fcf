"""Paged attention for decode and prefill, with the same bits for a row in both.

A row's context is cut into splits of `SPLIT` tokens and a split into pages, both counted
from position 0, so neither chunking nor a cached prefix moves them. Within a split the pages are
folded, ascending, into (maximum, sum, weighted values) that begin empty; the splits' results are
folded, ascending, by `fold`. A page or split of which a row sees nothing leaves the row's numbers
as they were, bit for bit, so rows may share a tile with others that see more.

- `attend_decode`: every row is a request of its own; its splits are shared out among several CTAs,
  and whoever ends last folds them, or one CTA folds them as they end.
- `attend_prefill`: tiles of consecutive query rows of a lane; splits one after the other, folded
  as they end.

In both the query rows (tokens times the query heads that share a key head) are the 64-row operand
of wgmma; a decode tile has few live rows, which costs nothing that the memory traffic doesn't hide.

Buffers: q [rows, q_heads · D] (dtype of the cache; rotated); keys, values: tensor maps over
[pages · kv_heads · PAGE, D] with boxes of a page of one head; page_table i32 [slots, table_pages];
positions and slots i32 [rows]; out bf16 or f32 [rows, q_heads · D]. A row at position −1, or of a
slot that isn't there, gets zeros. `scale_log2` is the softmax scale times log2(e). Cells that
nothing was written to may hold anything, NaN too.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ignition.kernels.cuda.attention_blocks import block_page, empty, fold, fold_block, normalised


@triton.jit
def attend_decode(
    rows, q, keys, values, positions, slots, page_table, out, partials, arrivals, table_pages,
    slot_count, scale_log2, Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr,
    PAGE: tl.constexpr, SPLIT: tl.constexpr, WINDOW: tl.constexpr,
    ROWS: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    """Grid (KV_HEADS, workers, capacity): a worker takes an equal run of its row's splits.

    Scratch: `partials` f32 [capacity, KV_HEADS, splits of the longest context, G, D + 2] with G
    query heads a key head; `arrivals` i32 [capacity, KV_HEADS], zero before and after a launch.
    With one worker (`ALONE`) neither is touched.
    """
    GROUP: tl.constexpr = Q_HEADS // KV_HEADS
    head = tl.program_id(0)
    worker = tl.program_id(1)
    lane = tl.program_id(2)
    gdc_wait()
    live_rows = tl.load(rows)
    last = tl.load(positions + lane)
    slot = tl.load(slots + lane).to(tl.int64)
    end = tl.minimum(last + 1, table_pages * PAGE)
    if (slot < 0) | (slot >= slot_count):
        end = 0
    oldest = 0
    if WINDOW > 0:
        oldest = tl.maximum(end - WINDOW, 0)
    first_split = oldest // SPLIT
    # At least one split, which for an inert lane is empty.
    splits = tl.maximum(tl.cdiv(end, SPLIT), first_split + 1)
    several = splits - first_split > 1
    run = tl.cdiv(splits - first_split, tl.num_programs(1))
    active = tl.cdiv(splits - first_split, run)
    if (lane < live_rows) & (worker < active):
        table = page_table + slot * table_pages
        row = tl.arange(0, ROWS)
        column = tl.arange(0, D)
        live = row < GROUP
        at = (lane * Q_HEADS + head * GROUP + row)[:, None] * D + column[None, :]
        rotated = tl.load(q + at, mask=live[:, None], other=0.0)
        position = tl.full((ROWS,), 0, tl.int32) + last
        size: tl.constexpr = GROUP * (D + 2)
        longest = tl.cdiv(table_pages * PAGE, SPLIT)
        mine = partials + (lane * KV_HEADS + head).to(tl.int64) * longest * size
        begin = tl.maximum((first_split + worker * run) * SPLIT, oldest // PAGE * PAGE)
        stop = tl.minimum((first_split + worker * run + run) * SPLIT, end)
        maximum, total, mixed = empty(ROWS, D)
        if ALONE:
            all_maximum, all_total, all_mixed = empty(ROWS, D)
        page = block_page(table, begin, end, PAGE)
        whole = begin
        if WINDOW == 0:
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
                _keep(mine + key // SPLIT * size, maximum, total, mixed, live, ROWS, D)
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
                _keep(mine + key // SPLIT * size, maximum, total, mixed, live, ROWS, D)
                maximum, total, mixed = empty(ROWS, D)
        gdc_launch_dependents()
        if ALONE:
            result = normalised(all_total, all_mixed).to(out.dtype.element_ty)
            tl.store(out + at, result, mask=live[:, None])
        else:
            if several:
                counter = arrivals + lane * KV_HEADS + head
                tl.debug_barrier()  # every thread's results are stored before arriving
                if tl.atomic_add(counter, 1, sem="acq_rel") == active - 1:
                    kept = mine + first_split * size
                    total, mixed = _fold_kept(kept, splits - first_split, live, GROUP, ROWS, D)
                    result = normalised(total, mixed).to(out.dtype.element_ty)
                    tl.store(out + at, result, mask=live[:, None])
                    tl.store(counter, 0)
            else:
                # Folding one split into nothing changes nothing.
                result = normalised(total, mixed).to(out.dtype.element_ty)
                tl.store(out + at, result, mask=live[:, None])


@triton.jit
def _fold_kept(kept, splits, live, GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr):
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


@triton.jit
def _keep(to, maximum, total, mixed, live, ROWS: tl.constexpr, D: tl.constexpr):
    """Stores a split's result."""
    to += tl.arange(0, ROWS) * (D + 2)
    tl.store(to, maximum, mask=live)
    tl.store(to + 1, total, mask=live)
    tl.store(to[:, None] + 2 + tl.arange(0, D)[None, :], mixed, mask=live[:, None])


@triton.jit
def attend_prefill(
    rows, lanes, query_lengths, q, keys, values, positions, slots, page_table, out, lane_capacity,
    table_pages, slot_count, scale_log2, Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr,
    D: tl.constexpr, PAGE: tl.constexpr, SPLIT: tl.constexpr, WINDOW: tl.constexpr,
    ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Grid (KV_HEADS, ⌈packed capacity / TOKENS⌉ + LANES), TOKENS = ROWS // G tokens a tile.

    A lane's query rows are consecutive, lane after lane; `LANES` is the power of two at or above
    `lane_capacity`. The slot of a lane is that of its first row.
    """
    GROUP: tl.constexpr = Q_HEADS // KV_HEADS
    TOKENS: tl.constexpr = ROWS // GROUP
    head = tl.program_id(0)
    gdc_wait()
    lane_at = tl.arange(0, LANES)
    live_lanes = tl.minimum(tl.load(lanes), lane_capacity)
    lengths = tl.maximum(tl.load(query_lengths + lane_at, mask=lane_at < live_lanes, other=0), 0)
    tiles = tl.cdiv(lengths, TOKENS)
    # Later tiles of a prompt see more keys: they begin first.
    tile = tl.sum(tiles, 0) - 1 - tl.program_id(1)
    if tile >= 0:
        before = tl.cumsum(tiles, 0) <= tile
        lane = tl.sum(before.to(tl.int32), 0)
        row_of_lane = tl.sum(tl.where(before, lengths, 0), 0)
        length = tl.sum(tl.where(lane_at == lane, lengths, 0), 0)
        first = (tile - tl.sum(tl.where(before, tiles, 0), 0)) * TOKENS
        live_rows = tl.load(rows)
        # Lengths that add up to more rows than there are end where the rows do.
        length = tl.minimum(length, live_rows - row_of_lane)
        slot = tl.load(slots + row_of_lane, mask=first < length, other=-1).to(tl.int64)
        table = page_table + slot * table_pages
        row = tl.arange(0, ROWS)
        column = tl.arange(0, D)
        token = first + row // GROUP
        live = (token < length) & (row < TOKENS * GROUP)
        packed = row_of_lane + token
        position = tl.load(positions + packed, mask=live, other=-1)
        at = (packed * Q_HEADS + head * GROUP + row % GROUP).to(tl.int64)
        at = at[:, None] * D + column[None, :]
        rotated = tl.load(q + at, mask=live[:, None], other=0.0)
        end = tl.minimum(tl.max(position, 0) + 1, table_pages * PAGE)
        if (slot < 0) | (slot >= slot_count):
            end = 0
        lowest = tl.min(tl.where(live, position, 2147483647), 0)
        oldest = 0
        whole = (lowest + 1) // PAGE * PAGE
        if WINDOW > 0:
            oldest = tl.maximum(lowest - WINDOW + 1, 0)
            whole = oldest // PAGE * PAGE
        begin = oldest // PAGE * PAGE
        whole = tl.minimum(whole, end // PAGE * PAGE)
        maximum, total, mixed = empty(ROWS, D)
        all_maximum, all_total, all_mixed = empty(ROWS, D)
        page = block_page(table, begin, end, PAGE)
        for key in range(begin, whole, PAGE):
            next_page = block_page(table, key + PAGE, end, PAGE)
            maximum, total, mixed = fold_block(
                rotated, keys, values, page, key, oldest, end, position, head,
                maximum, total, mixed, scale_log2, KV_HEADS, PAGE, WINDOW, False,
            )  # fmt: skip
            page = next_page
            if (key + PAGE) % SPLIT == 0:
                all_maximum, all_total, all_mixed = fold(
                    all_maximum, all_total, all_mixed, maximum, total, mixed
                )
                maximum, total, mixed = empty(ROWS, D)
        for key in range(whole, end, PAGE):
            next_page = block_page(table, key + PAGE, end, PAGE)
            maximum, total, mixed = fold_block(
                rotated, keys, values, page, key, oldest, end, position, head,
                maximum, total, mixed, scale_log2, KV_HEADS, PAGE, WINDOW, True,
            )  # fmt: skip
            page = next_page
            if ((key + PAGE) % SPLIT == 0) | (key + PAGE >= end):
                all_maximum, all_total, all_mixed = fold(
                    all_maximum, all_total, all_mixed, maximum, total, mixed
                )
                maximum, total, mixed = empty(ROWS, D)
        # Where every row sees whole pages alone, the last split may still be open.
        all_maximum, all_total, all_mixed = fold(
            all_maximum, all_total, all_mixed, maximum, total, mixed
        )
        gdc_launch_dependents()
        result = normalised(all_total, all_mixed).to(out.dtype.element_ty)
        tl.store(out + at, result, mask=live[:, None])
