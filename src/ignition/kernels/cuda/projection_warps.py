"""Projections of many rows whose warps share the work: one brings blocks, two groups multiply.

The order of an output's sum and the epilogues' arithmetic are `projection.project_many`'s for a
matrix in one part, and so are the bits. What differs is who waits for whom: blocks come through
tensor maps into a ring that runs on from tile to tile, each group of four warps keeps products in
flight while it waits for the next block, and the groups take tiles in turns, so that one's epilogue
passes beside the other's products.
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

from ignition.kernels.cuda.projection_stores import finish_in_parts


@gluon.jit
def project_in_groups(
    rows, x, w, bias, out, squares, epsilon, N: gl.constexpr, K: gl.constexpr, BN: gl.constexpr,
    BM: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr,
    EPILOGUE: gl.constexpr, BIAS: gl.constexpr, WEIGHED: gl.constexpr,
):  # fmt: skip
    """Any grid of one axis; more than a CTA for each multiprocessor or tile is of no use.

    `x` and `w` are tensor maps over [capacity, K] and [N, K] with boxes [BM, BK] and [BN, BK], so K
    is a multiple of 8; `projection` has the shapes and the values of `EPILOGUE`.
    `GROUP` row tiles pass over the weights together, so that both operands stay in the L2 cache.
    `WEIGHED`: `squares` f32 [capacity] are those of the rows, whose products they scale.
    """
    x_blocks = gl.allocate_shared_memory(gl.bfloat16, [STAGES, BM, BK], x.layout)
    w_blocks = gl.allocate_shared_memory(gl.bfloat16, [STAGES, BN, BK], w.layout)
    barrier: gl.constexpr = mbarrier.MBarrierLayout()
    there = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barrier)
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], barrier)
    turns = gl.allocate_shared_memory(gl.int64, [2, 1], barrier)
    for stage in gl.static_range(STAGES):
        mbarrier.init(there.index(stage), count=1)
        mbarrier.init(free.index(stage), count=1)
    mbarrier.init(turns.index(0), count=1)
    mbarrier.init(turns.index(1), count=1)
    fence_async_shared()
    gdc_wait()
    live = gl.load(rows)
    shared = (x_blocks, w_blocks, there, free, turns)
    blocks: gl.constexpr = (BM, BN, BK, STAGES, GROUP)
    matrix: gl.constexpr = (N, K, EPILOGUE, BIAS, WEIGHED)
    gl.warp_specialize(
        [
            (_multiply, (bias, out, squares, epsilon, live, shared, 0, blocks, matrix)),
            (_multiply, (bias, out, squares, epsilon, live, shared, 1, blocks, matrix)),
            (_bring, (x, w, out, live, shared, blocks, matrix)),
        ],
        [4, 1],
        [232, 40],
    )


@gluon.jit
def _place(tile, tiles_m, BM: gl.constexpr, BN: gl.constexpr, N: gl.constexpr, GROUP: gl.constexpr):
    """First row and first output of a tile."""
    per_group: gl.constexpr = GROUP * ((N + BN - 1) // BN)
    group = tile // per_group
    inside = tile % per_group
    size = gl.minimum(tiles_m - group * GROUP, GROUP)
    return (group * GROUP + inside % size) * BM, inside // size * BN


@gluon.jit
def _following(stage, phase, STAGES: gl.constexpr):
    """The next block's place in the ring and its round's parity."""
    last = stage == STAGES - 1
    return gl.where(last, 0, stage + 1), gl.where(last, phase ^ 1, phase)


@gluon.jit
def _bring(x, w, out, live, shared, BLOCKS: gl.constexpr, MATRIX: gl.constexpr):
    """Loads the blocks of tile after tile as places become free, and lets the next launch begin."""
    x_blocks, w_blocks, there, free, _ = shared
    BM: gl.constexpr = BLOCKS[0]
    BN: gl.constexpr = BLOCKS[1]
    BK: gl.constexpr = BLOCKS[2]
    STAGES: gl.constexpr = BLOCKS[3]
    GROUP: gl.constexpr = BLOCKS[4]
    N: gl.constexpr = MATRIX[0]
    K: gl.constexpr = MATRIX[1]
    EPILOGUE: gl.constexpr = MATRIX[2]
    COUNT: gl.constexpr = (K + BK - 1) // BK
    AHEAD: gl.constexpr = 8 if COUNT >= 8 else COUNT
    NBYTES: gl.constexpr = (BM + BN) * BK * 2
    tiles_m = (live + BM - 1) // BM
    tiles = tiles_m * ((N + BN - 1) // BN)
    stage = gl.to_tensor(0)
    phase = gl.to_tensor(1)
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        first_row, first_output = _place(tile, tiles_m, BM, BN, N, GROUP)
        for block in range(COUNT):
            mbarrier.wait(free.index(stage), phase)
            full = there.index(stage)
            mbarrier.expect(full, NBYTES)
            k = block * BK
            tma.async_load(x, [first_row, k], full, x_blocks.index(stage))
            tma.async_load(w, [first_output, k], full, w_blocks.index(stage))
            stage, phase = _following(stage, phase, STAGES)
            if EPILOGUE == 2:  # noqa: SIM102 (one of the two is known to the compiler)
                if block >= COUNT - AHEAD:
                    piece = block - (COUNT - AHEAD)
                    _ask(out, first_row, first_output, live, piece, N, BM, BN, AHEAD)
    gdc_launch_dependents()


@gluon.jit
def _ask(
    out, first_row, first_output, live, piece, N: gl.constexpr, BM: gl.constexpr,
    BN: gl.constexpr, PIECES: gl.constexpr,
):  # fmt: skip
    """Brings a piece of the residual that a tile will be added to into the L2 cache."""
    LINES: gl.constexpr = BN // 32  # of a row
    EACH: gl.constexpr = 32 // LINES  # rows of one instruction
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    thread = gl.arange(0, 32, layout=layout)
    column = first_output + thread % LINES * 32
    for step in gl.static_range((BM // EACH + PIECES - 1) // PIECES):
        row = first_row + (step * PIECES + piece) * EACH + thread // LINES
        wanted = (row < live) & (column < N) & (row < first_row + BM)
        gl.inline_asm_elementwise(
            "{ .reg .pred p; setp.ne.s32 p, $2, 0; @p prefetch.global.L2 [$1]; mov.b32 $0, 0; }",
            "=r,l,r", [out + row.to(gl.int64) * N + column, wanted.to(gl.int32)],
            dtype=gl.int32, is_pure=False, pack=1,
        )  # fmt: skip


@gluon.jit
def _multiply(
    bias, out, squares, epsilon, live, shared, INDEX: gl.constexpr, BLOCKS: gl.constexpr,
    MATRIX: gl.constexpr,
):  # fmt: skip
    """One group's tiles, every other one of its CTA's, from the first product to the output."""
    x_blocks, w_blocks, there, free, turns = shared
    BM: gl.constexpr = BLOCKS[0]
    BN: gl.constexpr = BLOCKS[1]
    BK: gl.constexpr = BLOCKS[2]
    STAGES: gl.constexpr = BLOCKS[3]
    GROUP: gl.constexpr = BLOCKS[4]
    N: gl.constexpr = MATRIX[0]
    K: gl.constexpr = MATRIX[1]
    COUNT: gl.constexpr = (K + BK - 1) // BK
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    tiles_m = (live + BM - 1) // BM
    tiles = tiles_m * ((N + BN - 1) // BN)
    start = gl.program_id(0) + INDEX * gl.num_programs(0)
    block_number = gl.to_tensor(INDEX * COUNT)
    stage = block_number % STAGES
    phase = (block_number // STAGES) & 1
    turn = gl.to_tensor(1 - INDEX)
    for tile in range(start, tiles, 2 * gl.num_programs(0)):
        first_row, first_output = _place(tile, tiles_m, BM, BN, N, GROUP)
        # Blocks that the other group waits for come first, so its parities are past.
        mbarrier.wait(turns.index(INDEX), turn)
        turn ^= 1
        if MATRIX[4]:
            row = first_row + gl.arange(0, BM, layout=gl.SliceLayout(1, SUMS))
            total = gl.load(squares + row, mask=row < live, other=0.0)
        sums = gl.zeros([BM, BN], gl.float32, SUMS)
        mbarrier.wait(there.index(stage), phase)
        products = w_blocks.index(stage).permute((1, 0))
        sums = warpgroup_mma(x_blocks.index(stage), products, sums, use_acc=False, is_async=True)
        sums = warpgroup_mma_wait(1, deps=[sums])
        before = stage
        stage, phase = _following(stage, phase, STAGES)
        for _ in range(COUNT - 1):
            mbarrier.wait(there.index(stage), phase)
            products = w_blocks.index(stage).permute((1, 0))
            sums = warpgroup_mma(x_blocks.index(stage), products, sums, is_async=True)
            sums = warpgroup_mma_wait(1, deps=[sums])
            mbarrier.arrive(free.index(before), count=1)
            before = stage
            stage, phase = _following(stage, phase, STAGES)
        mbarrier.arrive(turns.index(1 - INDEX), count=1)
        sums = warpgroup_mma_wait(0, deps=[sums])
        mbarrier.arrive(free.index(before), count=1)
        # The other group's blocks lie between this tile's and the next one's.
        block_number += 2 * COUNT
        stage = block_number % STAGES
        phase = (block_number // STAGES) & 1
        if MATRIX[4]:
            sums *= gl.rsqrt(total * (1.0 / K) + epsilon)[:, None]
        finish_in_parts(
            sums, bias, out, first_row, first_output, live, BM, BN, N, MATRIX[2], MATRIX[3]
        )
