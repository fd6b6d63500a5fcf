"""Paged attention of rows that are requests of their own: one query token each.

A row's splits are shared out among several CTAs, and whoever ends last folds them, ascending; with
one CTA a row (`ALONE`) it folds them as they end. The order and the buffers are those of
`attention`.

- `attend_decode` reads rotated queries, and a cache that holds the row's own key and value.
- `rotate_and_attend` does what `rotary.rope_and_cache` does as well: each CTA rotates the queries
  that it needs, by the same arithmetic, and the one with a row's last page stores its key and value
  and uses them from registers.
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
    fold_newest_block,
    normalised,
)
from ignition.kernels.cuda.prefetch import bring_blocks
from ignition.kernels.cuda.rotary import (
    as_f16,
    cosine_and_sine,
    normalised_halves,
    rotated_heads,
)


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
    lane = tl.program_id(2)
    gdc_wait()
    live_rows = tl.load(rows)
    last = tl.load(positions + lane)
    slot = tl.load(slots + lane).to(tl.int64)
    end, oldest, first_split, splits = _context(
        last, slot, table_pages, slot_count, PAGE, SPLIT, WINDOW
    )
    run = tl.cdiv(splits - first_split, tl.num_programs(1))
    if (lane < live_rows) & (tl.program_id(1) * run < splits - first_split):
        row = tl.arange(0, ROWS)
        at = (lane * Q_HEADS + head * GROUP + row)[:, None] * D + tl.arange(0, D)[None, :]
        rotated = tl.load(q + at, mask=(row < GROUP)[:, None], other=0.0)
        table = page_table + slot * table_pages
        nothing = tl.zeros((1, D), tl.float16)
        total, mixed, mine = _attended(
            rotated, keys, values, nothing, nothing, -1, table, last, oldest, end, first_split,
            splits, run, partials, arrivals, table_pages, scale_log2, Q_HEADS, KV_HEADS, D, PAGE,
            SPLIT, WINDOW, ROWS, ALONE, False, False,
        )  # fmt: skip
        if mine:
            result = normalised(total, mixed).to(out.dtype.element_ty)
            tl.store(out + at, result, mask=(row < GROUP)[:, None])


@triton.jit
def rotate_and_attend(
    rows, qkv, keys, values, positions, slots, page_table, inverse_frequency, q_norm, k_norm,
    key_plane, value_plane, out, partials, arrivals, table_pages, slot_count, pages, epsilon,
    attention_factor, scale_log2, Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr,
    PAGE: tl.constexpr, SPLIT: tl.constexpr, WINDOW: tl.constexpr, ROWS: tl.constexpr,
    ALONE: tl.constexpr, Q_NORM: tl.constexpr, K_NORM: tl.constexpr, SETTLED: tl.constexpr,
):  # fmt: skip
    """Grid and scratch as `attend_decode`; qkv f32 [capacity, Q_HEADS + 2 KV_HEADS, D]; the planes
    are those that `keys` and `values` map.

    `SETTLED`: live rows, positions, slots and page table are older than the launch before this one,
    which waited for them before it let this one begin: they are read before the wait.
    """
    GROUP: tl.constexpr = Q_HEADS // KV_HEADS
    HALF: tl.constexpr = D // 2
    HEADS: tl.constexpr = Q_HEADS + 2 * KV_HEADS
    head = tl.program_id(0)
    lane = tl.program_id(2)
    half = tl.arange(0, HALF)
    frequency = tl.load(inverse_frequency + half)
    if not SETTLED:
        gdc_wait()
    live_rows = tl.load(rows)
    last = tl.load(positions + lane)
    slot = tl.load(slots + lane).to(tl.int64)
    end, oldest, first_split, splits = _context(
        last, slot, table_pages, slot_count, PAGE, SPLIT, WINDOW
    )
    run = tl.cdiv(splits - first_split, tl.num_programs(1))
    table = page_table + slot * table_pages
    taken = (lane < live_rows) & (tl.program_id(1) * run < splits - first_split)
    if SETTLED:
        if taken:
            # The first pages of what follows, both planes.
            begin = tl.maximum((first_split + tl.program_id(1) * run) * SPLIT, oldest) // PAGE
            ahead = begin + tl.arange(0, 128) // 32
            known = (ahead * PAGE < end) & (ahead * PAGE < (begin * PAGE // SPLIT + run) * SPLIT)
            found = tl.load(table + ahead, mask=known, other=0).to(tl.int64)
            known &= (found >= 0) & (found < pages)
            bring_blocks(key_plane, found * KV_HEADS + head, known, 2 * PAGE * D)
            bring_blocks(value_plane, found * KV_HEADS + head, known, 2 * PAGE * D)
        gdc_wait()
    gdc_launch_dependents()
    if taken:
        row = tl.arange(0, ROWS)
        live = row < GROUP
        token = qkv + lane.to(tl.int64) * (HEADS * D)
        cosine, sine = cosine_and_sine(last.to(tl.float32) * frequency)
        cosine = (cosine * attention_factor)[None, :]
        sine = (sine * attention_factor)[None, :]
        at = token + (head * GROUP + row)[:, None] * D + half[None, :]
        first = tl.load(at, mask=live[:, None], other=0.0)
        second = tl.load(at + HALF, mask=live[:, None], other=0.0)
        if Q_NORM:
            first, second = normalised_halves(first, second, q_norm, epsilon, ROWS, D)
        first, second = rotated_heads(first, second, cosine, sine)
        rotated = _whole(as_f16(first), as_f16(second), ROWS, D)
        at = token + (Q_HEADS + head) * D + half[None, :]
        first = tl.load(at)
        second = tl.load(at + HALF)
        if K_NORM:
            first, second = normalised_halves(first, second, k_norm, epsilon, 1, D)
        first, second = rotated_heads(first, second, cosine, sine)
        new_key = _whole(as_f16(first), as_f16(second), 1, D)
        whole = tl.arange(0, D)[None, :]
        new_value = as_f16(tl.load(token + (Q_HEADS + KV_HEADS + head) * D + whole))
        # Without a place the row's own token is a token that isn't cached.
        placed = (last >= 0) & (last < end)
        page = tl.load(table + last // PAGE, mask=placed, other=-1)
        placed &= (page >= 0) & (page < pages)
        newest = tl.where(placed, last, -1)
        total, mixed, mine = _attended(
            rotated, keys, values, new_key, new_value, newest, table, last, oldest, end,
            first_split, splits, run, partials, arrivals, table_pages, scale_log2, Q_HEADS,
            KV_HEADS, D, PAGE, SPLIT, WINDOW, ROWS, ALONE, True, True,
        )  # fmt: skip
        at = (lane * Q_HEADS + head * GROUP + row)[:, None] * D + whole
        if mine:
            result = normalised(total, mixed).to(out.dtype.element_ty)
            tl.store(out + at, result, mask=live[:, None])
        # The worker of the last split stores what the next token will read.
        if (tl.program_id(1) + 1) * run >= splits - first_split:
            cell = (page.to(tl.int64) * KV_HEADS + head) * PAGE + last % PAGE
            tl.store(key_plane + cell * D + whole, new_key, mask=placed)
            tl.store(value_plane + cell * D + whole, new_value, mask=placed)


@triton.jit
def _context(
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
def _whole(first, second, ROWS: tl.constexpr, D: tl.constexpr):
    """Heads [ROWS, D] of their halves."""
    return tl.reshape(tl.permute(tl.join(first, second), (0, 2, 1)), (ROWS, D))


@triton.jit
def _attended(
    rotated, keys, values, new_key, new_value, newest, table, last, oldest, end, first_split,
    splits, run, partials, arrivals, table_pages, scale_log2, Q_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, SPLIT: tl.constexpr,
    WINDOW: tl.constexpr, ROWS: tl.constexpr, ALONE: tl.constexpr, NEW: tl.constexpr,
    LET_GO: tl.constexpr,
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
        # Pages without a token that is hidden from the row, or not written yet.
        seen = tl.maximum(end - 1, 0) if NEW else end
        whole = tl.maximum(tl.minimum(stop, seen // PAGE * PAGE), begin)
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
            _keep(kept + key // SPLIT * size, maximum, total, mixed, live, ROWS, D)
            maximum, total, mixed = empty(ROWS, D)
    for key in range(whole, stop, PAGE):
        next_page = block_page(table, key + PAGE, end, PAGE)
        if NEW:
            maximum, total, mixed = fold_newest_block(
                rotated, keys, values, new_key, new_value, newest, page, key, oldest, end,
                position, head, maximum, total, mixed, scale_log2, KV_HEADS, PAGE, WINDOW,
            )  # fmt: skip
        else:
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
            _keep(kept + key // SPLIT * size, maximum, total, mixed, live, ROWS, D)
            maximum, total, mixed = empty(ROWS, D)
    if not LET_GO:
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
                total, mixed = _fold_kept(first, splits - first_split, live, GROUP, ROWS, D)
                tl.store(counter, 0)
    return total, mixed, mine


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
