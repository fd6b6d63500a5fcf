"""Paged attention for prefill; what it shares with `decode`, whose rows get the same bits.

A row's context is cut into splits of `SPLIT` tokens and a split into pages, both counted
from position 0, so neither chunking nor a cached prefix moves them. Within a split the pages are
folded, ascending, into (maximum, sum, weighted values) that begin empty; the splits' results are
folded, ascending, by `fold`. A page or split of which a row sees nothing leaves the row's numbers
as they were, bit for bit, so rows may share a tile with others that see more.

- `decode.attend_decode`: every row is a request of its own; its splits are shared out among several
  CTAs, and whoever ends last folds them, or one CTA folds them as they end.
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
