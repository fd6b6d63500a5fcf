"""Paged attention of rows that are requests of their own, their rotation and cache writes inside.

What `rotary.rope_and_cache` and `decode.attend_decode` do one after the other, with their bits:
each CTA rotates the queries that it needs, and the one with a row's last page stores its key and
value and takes them from registers, so that nothing of this launch is read that it writes.

Comes after the projection of its rows, which writes nothing else that it reads. So all but what
the projection makes is looked up before the wait: the row's place, its pages, its angles; and the
pages are brought into the L2 cache, the last one too, which is all that a short context has.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ignition.kernels.cuda.attention_blocks import (
    block_page,
    empty,
    fold_block,
    fold_loaded_block,
    normalised,
)
from ignition.kernels.cuda.rotary import (
    as_f16,
    cosine_and_sine,
    joined_halves,
    normalised_halves,
    rotated_heads,
)
from ignition.kernels.cuda.splits import bring_pages, context, fold_kept, keep, run_of


@triton.jit
def rotate_and_attend(
    rows, qkv, keys, values, positions, slots, page_table, inverse_frequency, q_norm, k_norm,
    key_plane, value_plane, out, partials, arrivals, table_pages, slot_count, pages, epsilon,
    attention_factor, scale_log2, Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr,
    PAGE: tl.constexpr, SPLIT: tl.constexpr, WINDOW: tl.constexpr, ROWS: tl.constexpr,
    HEIGHT: tl.constexpr, Q_NORM: tl.constexpr, K_NORM: tl.constexpr,
):  # fmt: skip
    """Grid, planes and scratch as `attend_decode`; qkv f32 [capacity, Q_HEADS + 2 KV_HEADS, D].

    Live rows, positions, slots and page table are older than the launch before this one.
    """
    GROUP: tl.constexpr = Q_HEADS // KV_HEADS
    HALF: tl.constexpr = D // 2
    HEADS: tl.constexpr = Q_HEADS + 2 * KV_HEADS
    head = tl.program_id(0)
    worker = tl.program_id(1)
    lane = tl.program_id(2)
    half = tl.arange(0, HALF)
    whole = tl.arange(0, D)[None, :]
    frequency = tl.load(inverse_frequency + half)
    live_rows = tl.load(rows)
    last = tl.load(positions + lane)
    slot = tl.load(slots + lane).to(tl.int64)
    end, oldest, first_split, splits = context(
        last, slot, table_pages, slot_count, PAGE, SPLIT, WINDOW
    )
    run, begin, stop, final = run_of(end, oldest, first_split, splits, PAGE, SPLIT)
    taken = (lane < live_rows) & (worker * run < splits - first_split)
    table = page_table + slot * table_pages
    block, there = bring_pages(
        key_plane, value_plane, table, begin, stop, final, taken, pages, head, KV_HEADS, D, PAGE
    )
    # Without a place the row's own token is a token that isn't cached.
    placed = taken & (last >= 0) & (last < end)
    new_page = tl.load(table + last // PAGE, mask=placed, other=-1)
    placed &= (new_page >= 0) & (new_page < pages)
    newest = tl.where(placed, last, -1)
    cosine, sine = cosine_and_sine(last.to(tl.float32) * frequency)
    cosine = (cosine * attention_factor)[None, :]
    sine = (sine * attention_factor)[None, :]
    gdc_wait()
    gdc_launch_dependents()
    if taken:
        query = tl.arange(0, HEIGHT)
        is_query = (query < GROUP)[:, None]
        token = qkv + lane.to(tl.int64) * (HEADS * D)
        at = token + (head * GROUP + query)[:, None] * D + half[None, :]
        first = tl.load(at, mask=is_query, other=0.0)
        second = tl.load(at + HALF, mask=is_query, other=0.0)
        at = token + (Q_HEADS + head) * D + half[None, :]
        first_key = tl.load(at)
        second_key = tl.load(at + HALF)
        new_value = as_f16(tl.load(token + (Q_HEADS + KV_HEADS + head) * D + whole))
        if Q_NORM:
            first, second = normalised_halves(first, second, q_norm, epsilon, HEIGHT, D)
        first, second = rotated_heads(first, second, cosine, sine)
        rotated = joined_halves(as_f16(first), as_f16(second), HEIGHT, D)
        # Rows past the query heads are copies, which nobody looks at.
        rotated = tl.broadcast_to(rotated[None, :, :], (ROWS // HEIGHT, HEIGHT, D))
        rotated = tl.reshape(rotated, (ROWS, D))
        if K_NORM:
            first_key, second_key = normalised_halves(first_key, second_key, k_norm, epsilon, 1, D)
        first_key, second_key = rotated_heads(first_key, second_key, cosine, sine)
        new_key = joined_halves(as_f16(first_key), as_f16(second_key), 1, D)
        attend_run(
            rotated, keys, values, key_plane, value_plane, block, there, new_key, new_value, newest,
            table, last, oldest, end, first_split, splits, run, begin, stop, final, out, partials,
            arrivals, table_pages, scale_log2, Q_HEADS, KV_HEADS, D, PAGE, SPLIT, WINDOW, ROWS,
            HEIGHT,
        )  # fmt: skip
        # The worker of the last split stores what the next token will read.
        if (worker + 1) * run >= splits - first_split:
            cell = (new_page.to(tl.int64) * KV_HEADS + head) * PAGE + last % PAGE
            tl.store(key_plane + cell * D + whole, new_key, mask=placed)
            tl.store(value_plane + cell * D + whole, new_value, mask=placed)


@triton.jit
def attend_run(
    rotated, keys, values, key_plane, value_plane, block, there, new_key, new_value, newest, table,
    last, oldest, end, first_split, splits, run, begin, stop, final, out, partials, arrivals,
    table_pages, scale_log2, Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr,
    PAGE: tl.constexpr, SPLIT: tl.constexpr, WINDOW: tl.constexpr, ROWS: tl.constexpr,
    HEIGHT: tl.constexpr,
):  # fmt: skip
    """Attends to a worker's run of splits, and stores a row's result if it is the last to end.

    `block`, where it is `there`, is what the last page has in both planes; the cell of token
    `newest` in it isn't written yet, and will hold `new_key` and `new_value` [1, D]. HEIGHT: the
    power of two at or above the query heads of a key head.

    Scratch: `partials` f32 [capacity, KV_HEADS, splits of the longest context, G, D + 2] with G
    query heads a key head; `arrivals` i32 [capacity, KV_HEADS], zero before and after a launch.
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
            keep(kept + key // SPLIT * size, maximum, total, mixed, live, ROWS, D)
            maximum, total, mixed = empty(ROWS, D)
    if final < stop:
        cells = (block * PAGE + tl.arange(0, PAGE))[:, None] * D + column
        key_block = tl.load(key_plane + cells, mask=there, other=0.0)
        value_block = tl.load(value_plane + cells, mask=there, other=0.0)
        here = (final + tl.arange(0, PAGE) == newest)[:, None]
        key_block = tl.where(here, new_key, key_block)
        value_block = tl.where(here, new_value, value_block)
        maximum, total, mixed = fold_loaded_block(
            rotated, key_block, value_block, final, oldest, end, position,
            maximum, total, mixed, scale_log2, PAGE, WINDOW,
        )  # fmt: skip
        if several:
            keep(kept + final // SPLIT * size, maximum, total, mixed, live, ROWS, D)
    if several:
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
