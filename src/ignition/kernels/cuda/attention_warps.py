"""Prefill attention whose warps share the work: one loads pages, two groups compute.

The order of sums is `attention.attend_prefill`'s, so are grid, buffers and bits; what differs is
when things happen: while a group turns a page's scores into weights, the tensor cores have the
values of the page before it and the scores of the page after it. Without a window, since every
split begins at its first page.

A tile is 128 query rows, 64 for each group of four warps. A row's scores of a page lie in the
registers of one group as they do in the other kernels, so row sums have their order.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ignition.kernels.cuda.attention_steps import (
    attend_page,
    attend_split,
    begin_products,
    fold,
    visible,
    weighed,
)


@gluon.jit
def attend_prefill_in_groups(
    rows, lanes, query_lengths, q, keys, values, positions, slots, page_table, out, lane_capacity,
    table_pages, slot_count, scale_log2, Q_HEADS: gl.constexpr, KV_HEADS: gl.constexpr,
    D: gl.constexpr, PAGE: gl.constexpr, SPLIT: gl.constexpr, LANES: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Grid (KV_HEADS, ⌈packed capacity / TOKENS⌉ + LANES), TOKENS = 128 // G tokens a tile.

    A stage is a page's keys and the values of the page before it; D is 64 or 128."""
    GROUP: gl.constexpr = Q_HEADS // KV_HEADS
    TOKENS: gl.constexpr = 128 // GROUP
    head = gl.program_id(0)
    gdc_wait()
    # Every warp has all lanes and all rows, so that no sum over them has to cross warps.
    A_THREAD: gl.constexpr = LANES // 32 if LANES > 32 else 1
    lane_at = gl.arange(0, LANES, layout=gl.BlockedLayout([A_THREAD], [32], [4], [0]))
    live_lanes = gl.minimum(gl.load(lanes), lane_capacity)
    lengths = gl.maximum(gl.load(query_lengths + lane_at, mask=lane_at < live_lanes, other=0), 0)
    tiles = (lengths + (TOKENS - 1)) // TOKENS
    # Later tiles of a prompt see more keys: they begin first.
    tile = gl.sum(tiles, 0) - 1 - gl.program_id(1)
    if tile >= 0:
        before = gl.cumsum(tiles, 0) <= tile
        lane = gl.sum(before.to(gl.int32), 0)
        row_of_lane = gl.sum(gl.where(before, lengths, 0), 0)
        length = gl.sum(gl.where(lane_at == lane, lengths, 0), 0)
        first = (tile - gl.sum(gl.where(before, tiles, 0), 0)) * TOKENS
        # Lengths that add up to more rows than there are end where the rows do.
        length = gl.minimum(length, gl.load(rows) - row_of_lane)
        slot = gl.load(slots + row_of_lane, mask=first < length, other=-1)
        table = page_table + slot.to(gl.int64) * table_pages
        row = gl.arange(0, 128, layout=gl.BlockedLayout([4], [32], [4], [0]))
        token = first + row // GROUP
        live = (token < length) & (row < TOKENS * GROUP)
        position = gl.load(positions + row_of_lane + token, mask=live, other=-1)
        end = gl.minimum(gl.maximum(gl.max(position, 0), 0) + 1, table_pages * PAGE)
        if (slot < 0) | (slot >= slot_count):
            end = 0
        lowest = gl.min(gl.where(live, position, 2147483647), 0)
        whole = gl.minimum((lowest + 1) // PAGE, end // PAGE)
        pages = (end + PAGE - 1) // PAGE
        key_blocks = gl.allocate_shared_memory(gl.float16, [STAGES, PAGE, D], keys.layout)
        value_blocks = gl.allocate_shared_memory(gl.float16, [STAGES, PAGE, D], values.layout)
        queries = gl.allocate_shared_memory(gl.float16, [2, 64, D], keys.layout)
        barrier: gl.constexpr = mbarrier.MBarrierLayout()
        keys_there = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barrier)
        values_there = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barrier)
        read = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barrier)
        last_there = gl.allocate_shared_memory(gl.int64, [1], barrier)
        for stage in gl.static_range(STAGES):
            mbarrier.init(keys_there.index(stage), count=1)
            mbarrier.init(values_there.index(stage), count=1)
            mbarrier.init(read.index(stage), count=2)
        mbarrier.init(last_there, count=1)
        fence_async_shared()
        tile_rows = (q, positions, out, row_of_lane, first, length, head, pages, whole, scale_log2)
        shared = (queries, key_blocks, value_blocks, keys_there, values_there, read)
        sizes: gl.constexpr = (Q_HEADS, KV_HEADS, D, PAGE, SPLIT, STAGES)
        source = (keys, values, table, head, pages, end, last_there)
        gl.warp_specialize(
            [
                (_attend, (tile_rows, shared, 0, sizes)),
                (_attend, (tile_rows, shared, 1, sizes)),
                (_bring, (source, shared, sizes)),
            ],
            [4, 1],
            [240, 24],
        )


@gluon.jit
def _bring(source, shared, SIZES: gl.constexpr):
    """Loads pages as stages become free; values past the end of the context become zeros."""
    keys, values, table, head, pages, end, last_there = source
    _, key_blocks, value_blocks, keys_there, values_there, read = shared
    KV_HEADS: gl.constexpr = SIZES[1]
    D: gl.constexpr = SIZES[2]
    PAGE: gl.constexpr = SIZES[3]
    STAGES: gl.constexpr = SIZES[5]
    entry = gl.load(table, mask=pages > 0, other=0)
    cell_before = 0
    # One stage more than pages: the last has values alone.
    for page in range(pages + 1):
        following = gl.load(table + page + 1, mask=page + 1 < pages, other=0)
        stage = page % STAGES
        cell = (entry * KV_HEADS + head) * PAGE
        mbarrier.wait(read.index(stage), (page // STAGES + 1) & 1)
        if page < pages:
            mbarrier.expect(keys_there.index(stage), keys.nbytes_per_cta)
            tma.async_load(keys, [cell, 0], keys_there.index(stage), key_blocks.index(stage))
        there = values_there.index(stage)
        block = value_blocks.index(stage)
        if page == 0:
            mbarrier.arrive(there, count=1)
        elif page * PAGE <= end:
            mbarrier.expect(there, values.nbytes_per_cta)
            tma.async_load(values, [cell_before, 0], there, block)
        else:
            mbarrier.expect(last_there, values.nbytes_per_cta)
            tma.async_load(values, [cell_before, 0], last_there, block)
            mbarrier.wait(last_there, 0)
            _clear(block, end - (page - 1) * PAGE, D, PAGE)
            fence_async_shared()
            mbarrier.arrive(there, count=1)
        entry = following
        cell_before = cell


@gluon.jit
def _clear(block, count, D: gl.constexpr, PAGE: gl.constexpr):
    """Zeros in rows from `count` on: a weight of 0 wouldn't take a NaN away."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // D, D // 8], [1, 1], [1, 0])
    for first in gl.static_range(0, PAGE, 8):
        part = block.slice(first, 8)
        row = first + gl.arange(0, 8, layout=gl.SliceLayout(1, layout))
        part.store(gl.where((row < count)[:, None], part.load(layout), 0.0))


@gluon.jit
def _attend(tile, shared, INDEX: gl.constexpr, SIZES: gl.constexpr):
    """The rows of one group of warps, from queries to output."""
    q, positions, out, row_of_lane, first, length, head, pages, whole, scale_log2 = tile
    queries, key_blocks, value_blocks, keys_there, values_there, read = shared
    Q_HEADS: gl.constexpr = SIZES[0]
    GROUP: gl.constexpr = SIZES[0] // SIZES[1]
    D: gl.constexpr = SIZES[2]
    PAGE: gl.constexpr = SIZES[3]
    STAGES: gl.constexpr = SIZES[5]
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PAGE, 16])
    MIXED: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    READ: gl.constexpr = gl.BlockedLayout([1, 8], [256 // D, D // 8], [4, 1], [1, 0])
    row = INDEX * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, READ))
    at, live = _places(row, row_of_lane, first, length, head, Q_HEADS, GROUP, D)
    column = gl.arange(0, D, layout=gl.SliceLayout(0, READ))
    part = gl.load(q + at[:, None] + column[None, :], mask=live[:, None], other=0.0)
    queries.index(INDEX).store(part)
    fence_async_shared()
    row = INDEX * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, SCORES))
    token = first + row // GROUP
    live = (token < length) & (row < 128 // GROUP * GROUP)
    position = gl.load(positions + row_of_lane + token, mask=live, other=-1)

    ROWS: gl.constexpr = gl.SliceLayout(1, SCORES)
    all_maximum = gl.full([64], float("-inf"), gl.float32, ROWS)
    all_total = gl.zeros([64], gl.float32, ROWS)
    mixed = gl.zeros([64, D], gl.float32, MIXED)
    all_mixed = mixed
    if pages > 0:
        mbarrier.wait(keys_there.index(0), 0)
        scores = warpgroup_mma_wait(0, deps=[begin_products(queries, key_blocks, 0, INDEX, PAGE)])
        TOGETHER: gl.constexpr = SIZES[4] // PAGE
        splits = gl.minimum(whole, pages - 1) // TOGETHER
        for split in range(splits):
            scores, maximum, total, mixed = attend_split(
                split * TOGETHER, scores, shared, scale_log2, INDEX, SIZES
            )
            all_maximum, all_total, all_mixed = fold(
                all_maximum, all_total, all_mixed, maximum, total, mixed, MIXED
            )
        page = splits * TOGETHER
        mbarrier.arrive(read.index(page % STAGES), count=1)
        scores = visible(scores, page * PAGE, position, PAGE, SCORES)
        maximum = gl.full([64], float("-inf"), gl.float32, ROWS)
        total = gl.zeros([64], gl.float32, ROWS)
        maximum, total, _decay, weights = weighed(scores, maximum, total, scale_log2)
        weights = gl.convert_layout(weights.to(gl.float16), gl.DotOperandLayout(0, MIXED, 2))
        mixed = gl.zeros([64, D], gl.float32, MIXED)
        for page in range(splits * TOGETHER + 1, pages):
            maximum, total, mixed, weights, all_maximum, all_total, all_mixed = attend_page(
                page, shared, position, scale_log2, maximum, total, mixed, weights,
                all_maximum, all_total, all_mixed, INDEX, SIZES,
            )  # fmt: skip
        stage = pages % STAGES
        mbarrier.wait(values_there.index(stage), (pages // STAGES) & 1)
        mixed = warpgroup_mma(weights, value_blocks.index(stage), mixed, is_async=True)
        mixed, weights = warpgroup_mma_wait(0, deps=[mixed, weights])
        all_maximum, all_total, all_mixed = fold(
            all_maximum, all_total, all_mixed, maximum, total, mixed, MIXED
        )
    gdc_launch_dependents()
    row = INDEX * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, MIXED))
    at, live = _places(row, row_of_lane, first, length, head, Q_HEADS, GROUP, D)
    column = gl.arange(0, D, layout=gl.SliceLayout(0, MIXED))
    sums = gl.convert_layout(all_total, gl.SliceLayout(1, MIXED))[:, None]
    result = gl.where(sums > 0, all_mixed / sums + 0.0, 0.0).to(out.dtype.element_ty)
    gl.store(out + at[:, None] + column[None, :], result, mask=live[:, None])


@gluon.jit
def _places(
    row, row_of_lane, first, length, head, Q_HEADS: gl.constexpr, GROUP: gl.constexpr,
    D: gl.constexpr,
):  # fmt: skip
    """Where the heads of a tile's rows begin, and which rows there are."""
    token = first + row // GROUP
    live = (token < length) & (row < 128 // GROUP * GROUP)
    at = ((row_of_lane + token) * Q_HEADS + head * GROUP + row % GROUP).to(gl.int64) * D
    return at, live
