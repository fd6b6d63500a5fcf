"""Paged attention for decode and prefill, with the same bits for a row in both.

A row's context is cut into splits of `SPLIT` tokens and a split into blocks of `BLOCK` keys, both
counted from position 0, so neither chunking nor a cached prefix moves them. Within a split the
blocks are folded in ascending order into (maximum, sum, weighted values) that begin empty; the
splits' results are folded, in ascending order, by `_fold`. A block or split of which a row sees
nothing leaves the row's numbers as they were, bit for bit, so rows may share a tile with others
that see more.

- `attend_decode`: one query row a lane; splits in CTAs of their own, folded by whoever ends last.
- `attend_prefill`: tiles of consecutive query rows of a lane; splits one after the other, folded
  as they end.

In both the query rows (tokens times the query heads that share a key head) are the 64-row operand
of wgmma; a decode tile has few live rows, which costs nothing that the memory traffic doesn't hide.

Buffers: q [rows, q_heads · D] (dtype of the cache; rotated), planes [pages, kv_heads, PAGE, D],
page_table i32 [slots, table_pages], positions i32 [rows] (−1: inert, gets zeros), out bf16
[rows, q_heads · D]. `scale_log2` is the softmax scale times log2(e).
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _fold_block(
    q,
    keys,
    values,
    table,
    first_key,
    end,
    position,
    head,
    maximum,
    total,
    mixed,
    scale_log2,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
    WINDOW: tl.constexpr,
):
    """One block of keys folded into each row's maximum, sum and weighted values.

    Keys at or past `end` are not read; rows see those up to `position`.
    """
    at = first_key + tl.arange(0, BLOCK)
    page = tl.load(table + at // PAGE, mask=at < end, other=0).to(tl.int64)
    row = (page * KV_HEADS + head) * PAGE + at % PAGE
    cells = row[:, None] * D + tl.arange(0, D)[None, :]
    key = tl.load(keys + cells, mask=(at < end)[:, None], other=0.0)
    # Memory that nothing was written to may hold NaN, which a weight of 0 wouldn't take away.
    value = tl.load(values + cells, mask=(at < end)[:, None], other=0.0)
    seen = at[None, :] <= position[:, None]
    if WINDOW > 0:
        seen &= at[None, :] > position[:, None] - WINDOW
    scores = tl.where(seen, tl.dot(q, tl.trans(key)), float("-inf"))
    new_maximum = tl.maximum(maximum, tl.max(scores, 1) * scale_log2)
    # A row that has seen nothing yet has no maximum to subtract.
    shift = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)
    weights = tl.exp2(
        tl.fma(scores, tl.full(scores.shape, scale_log2, tl.float32), -shift[:, None])
    )
    decay = tl.exp2(maximum - shift)
    total = total * decay + tl.sum(weights, 1)
    mixed = tl.dot(weights.to(value.dtype), value, mixed * decay[:, None])
    return new_maximum, total, mixed


@triton.jit
def _fold(maximum, total, mixed, split_maximum, split_total, split_mixed):
    """A split's result folded into those of the splits before it."""
    new_maximum = tl.maximum(maximum, split_maximum)
    shift = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)
    old = tl.exp2(maximum - shift)
    new = tl.exp2(split_maximum - shift)
    total = total * old + split_total * new
    mixed = mixed * old[:, None] + split_mixed * new[:, None]
    return new_maximum, total, mixed


@triton.jit
def _normalised(total, mixed):
    """Weighted values over the sum of weights; zeros for a row that saw nothing.

    Folding nothing into -0.0 gives 0.0, so that is what every zero becomes.
    """
    return tl.where(total[:, None] > 0, mixed / total[:, None] + 0.0, 0.0)


@triton.jit
def attend_decode(
    lanes,
    q,
    keys,
    values,
    positions,
    slots,
    page_table,
    out,
    partials,
    arrivals,
    table_pages,
    scale_log2,
    Q_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLIT: tl.constexpr,
    WINDOW: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Grid (KV_HEADS, workers, capacity): a worker takes every workers-th split of its lane.

    `partials` f32 [capacity, KV_HEADS, splits of the longest context, G, D + 2] with G query heads
    a key head is scratch; `arrivals` i32 [capacity, KV_HEADS] is zero before and after a launch.
    """
    GROUP: tl.constexpr = Q_HEADS // KV_HEADS
    head = tl.program_id(0)
    worker = tl.program_id(1)
    workers = tl.num_programs(1)
    lane = tl.program_id(2)
    gdc_wait()
    if lane < tl.load(lanes):
        last = tl.load(positions + lane)
        table = page_table + tl.load(slots + lane).to(tl.int64) * table_pages
        row = tl.arange(0, ROWS)
        column = tl.arange(0, D)
        live = row < GROUP
        at = (lane * Q_HEADS + head * GROUP + row)[:, None] * D + column[None, :]
        rotated = tl.load(q + at, mask=live[:, None], other=0.0)
        position = tl.full((ROWS,), 0, tl.int32) + last
        first_seen = 0
        if WINDOW > 0:
            first_seen = tl.maximum(last - WINDOW + 1, 0)
        first_split = first_seen // SPLIT
        splits = tl.cdiv(last + 1, SPLIT)
        size: tl.constexpr = GROUP * (D + 2)
        longest = tl.cdiv(table_pages * PAGE, SPLIT)
        mine = partials + (lane * KV_HEADS + head).to(tl.int64) * longest * size
        for split in range(first_split + worker, splits, workers):
            maximum = tl.full((ROWS,), float("-inf"), tl.float32)
            total = tl.zeros((ROWS,), tl.float32)
            mixed = tl.zeros((ROWS, D), tl.float32)
            begin = tl.maximum(split * SPLIT, first_seen // BLOCK * BLOCK)
            for key in range(begin, tl.minimum(split * SPLIT + SPLIT, last + 1), BLOCK):
                maximum, total, mixed = _fold_block(
                    rotated, keys, values, table, key, last + 1, position, head, maximum, total,
                    mixed, scale_log2, KV_HEADS, D, PAGE, BLOCK, WINDOW,
                )  # fmt: skip
            to = mine + split * size + row * (D + 2)
            tl.store(to, maximum, mask=live)
            tl.store(to + 1, total, mask=live)
            tl.store(to[:, None] + 2 + column[None, :], mixed, mask=live[:, None])
        gdc_launch_dependents()
        tl.debug_barrier()  # every thread's results are stored before the arrival is counted
        counter = arrivals + lane * KV_HEADS + head
        if tl.atomic_add(counter, 1, sem="acq_rel") == workers - 1:
            maximum = tl.full((ROWS,), float("-inf"), tl.float32)
            total = tl.zeros((ROWS,), tl.float32)
            mixed = tl.zeros((ROWS, D), tl.float32)
            for split in range(first_split, splits):
                to = mine + split * size + row * (D + 2)
                maximum, total, mixed = _fold(
                    maximum,
                    total,
                    mixed,
                    tl.load(to, mask=live, other=0.0),
                    tl.load(to + 1, mask=live, other=0.0),
                    tl.load(to[:, None] + 2 + column[None, :], mask=live[:, None], other=0.0),
                )
            result = _normalised(total, mixed).to(out.dtype.element_ty)
            tl.store(out + at, result, mask=live[:, None])
            tl.store(counter, 0)


@triton.jit
def attend_prefill(
    lanes,
    query_lengths,
    q,
    keys,
    values,
    positions,
    slots,
    page_table,
    out,
    table_pages,
    scale_log2,
    Q_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLIT: tl.constexpr,
    WINDOW: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
):
    """Grid (KV_HEADS, ⌈packed capacity / TOKENS⌉ + LANES), TOKENS = ROWS // G tokens a tile.

    A lane's query rows are consecutive, lane after lane; `LANES` is the power of two at or above
    the lanes' capacity.
    """
    GROUP: tl.constexpr = Q_HEADS // KV_HEADS
    TOKENS: tl.constexpr = ROWS // GROUP
    head = tl.program_id(0)
    gdc_wait()
    lane_at = tl.arange(0, LANES)
    lengths = tl.load(query_lengths + lane_at, mask=lane_at < tl.load(lanes), other=0)
    tiles = tl.cdiv(lengths, TOKENS)
    # Later tiles of a prompt see more keys: they begin first.
    tile = tl.sum(tiles, 0) - 1 - tl.program_id(1)
    if tile >= 0:
        before = tl.cumsum(tiles, 0) <= tile
        lane = tl.sum(before.to(tl.int32), 0)
        row_of_lane = tl.sum(tl.where(before, lengths, 0), 0)
        length = tl.sum(tl.where(lane_at == lane, lengths, 0), 0)
        first = (tile - tl.sum(tl.where(before, tiles, 0), 0)) * TOKENS
        table = page_table + tl.load(slots + lane).to(tl.int64) * table_pages
        row = tl.arange(0, ROWS)
        column = tl.arange(0, D)
        token = first + row // GROUP
        live = (token < length) & (row < TOKENS * GROUP)
        packed = row_of_lane + token
        position = tl.load(positions + packed, mask=live, other=-1)
        at = (packed * Q_HEADS + head * GROUP + row % GROUP).to(tl.int64)
        at = at[:, None] * D + column[None, :]
        rotated = tl.load(q + at, mask=live[:, None], other=0.0)
        end = tl.max(position, 0) + 1
        begin = 0
        if WINDOW > 0:
            lowest = tl.min(tl.where(live, position, 2147483647), 0)
            begin = tl.maximum(lowest - WINDOW + 1, 0) // BLOCK * BLOCK
        maximum = tl.full((ROWS,), float("-inf"), tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        mixed = tl.zeros((ROWS, D), tl.float32)
        all_maximum = maximum
        all_total = total
        all_mixed = mixed
        for key in range(begin, end, BLOCK):
            maximum, total, mixed = _fold_block(
                rotated, keys, values, table, key, end, position, head, maximum, total,
                mixed, scale_log2, KV_HEADS, D, PAGE, BLOCK, WINDOW,
            )  # fmt: skip
            if ((key + BLOCK) % SPLIT == 0) | (key + BLOCK >= end):
                all_maximum, all_total, all_mixed = _fold(
                    all_maximum, all_total, all_mixed, maximum, total, mixed
                )
                maximum = tl.full((ROWS,), float("-inf"), tl.float32)
                total = tl.zeros((ROWS,), tl.float32)
                mixed = tl.zeros((ROWS, D), tl.float32)
        gdc_launch_dependents()
        result = _normalised(all_total, all_mixed).to(out.dtype.element_ty)
        tl.store(out + at, result, mask=live[:, None])
