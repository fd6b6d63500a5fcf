"""Projections x Wᵀ with fused epilogues, in one accumulation order for every number of rows.

The order of an output's sum, whatever the tile: the reduction is cut into `SPLITS` equal parts;
within a part products enter one f32 accumulator sixteen at a time, ascending (one wgmma chain, no
matter how long a block is); the parts are added in ascending order. `SPLITS` belongs to the weight
matrix and is the same in every program. Two kernels share the order and the epilogue:

- `project_few` puts each part into a CTA of its own, for the CTAs that few rows don't give. Parts
  meet in a workspace; whoever arrives last adds them, in order, not in order of arrival.
- `project_many` keeps a tile's parts in one CTA and adds the accumulator to the total after each.

Rows (`ROWS_FIRST`) or weights are the 64-row operand of wgmma, whichever suits the tile; the other
may be as narrow as 8. `tiles` chooses the blocks, `docs/cuda.md` says what was measured.

Shapes: x bf16 [capacity, K], w bf16 [N, K], `rows` i32[1] the live rows, out [capacity, N].
`SETTLED`: `rows` is older than the launch before, so that it is read before the wait.
Rows of `x` may be weighed ones (`weighing`): `squares` f32 [capacity, BLOCKS] scale their products;
BLOCKS is 0 where they aren't, PADDED_BLOCKS a power of two at or above it. Where the epilogue
weighs, `squares` [capacity, N / BLOCK] and `weighed` bf16 [capacity, N] are written.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ignition.kernels.cuda.weighing import inverse_roots, read_squares, store_weighed

# Values of EPILOGUE.
BF16 = 0  # out bf16
F32 = 1  # out f32
ADD = 2  # out f32 += x Wᵀ, the residual
SILU_MUL = 3  # out bf16 [capacity, N / 2]: silu(gate) · up; w alternates 8 gate rows and 8 up rows
ADD_WEIGHED = 4  # ADD, and the rows of the residual weighed for the norm that comes next


@triton.jit
def _accumulate(
    x, w, first_output, first_row, live, first_k, N: tl.constexpr, K: tl.constexpr,
    PART: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    ROWS_FIRST: tl.constexpr,
):  # fmt: skip
    """One part's sums [BM, BN], k from `first_k` for `PART` products."""
    outputs = first_output + tl.arange(0, BN)
    rows = first_row + tl.arange(0, BM)
    ks = first_k + tl.arange(0, BK)
    # Outputs past the end read the last one; their sums go nowhere.
    if N % BN != 0:
        outputs = tl.minimum(outputs, N - 1)
    if N * K >= 2**31:
        outputs = outputs.to(tl.int64)
    if ROWS_FIRST:
        w_at = w + outputs[None, :] * K + ks[:, None]
        x_at = x + rows[:, None] * K + ks[None, :]
        sums = tl.zeros((BM, BN), dtype=tl.float32)
        mask = (rows < live)[:, None]
    else:
        w_at = w + outputs[:, None] * K + ks[None, :]
        x_at = x + rows[None, :] * K + ks[:, None]
        sums = tl.zeros((BN, BM), dtype=tl.float32)
        mask = (rows < live)[None, :]
    for block in range(tl.cdiv(PART, BK)):
        if PART % BK == 0:
            w_block = tl.load(w_at)
            x_block = tl.load(x_at, mask=mask, other=0.0)
        else:
            # Products of zeros change no sum.
            inside = block * BK + tl.arange(0, BK) < PART
            w_inside = inside[:, None] if ROWS_FIRST else inside[None, :]
            x_inside = inside[None, :] if ROWS_FIRST else inside[:, None]
            w_block = tl.load(w_at, mask=w_inside, other=0.0)
            x_block = tl.load(x_at, mask=mask & x_inside, other=0.0)
        sums = tl.dot(x_block, w_block, sums) if ROWS_FIRST else tl.dot(w_block, x_block, sums)
        w_at += BK
        x_at += BK
    return sums if ROWS_FIRST else tl.trans(sums)


@triton.jit
def finish(
    sums, bias, out, factor, weighed, squares, first_output, first_row, live, N: tl.constexpr,
    BN: tl.constexpr, BM: tl.constexpr, EPILOGUE: tl.constexpr, BIAS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Adds the bias to sums [BM, BN] and stores them as the epilogue says; `factor` [BN] is what
    one that weighs multiplies by."""
    if BIAS:
        at = first_output + tl.arange(0, BN)
        sums += tl.load(bias + at, mask=at < N, other=0.0)[None, :]
    if EPILOGUE == 3:
        pairs = tl.permute(tl.reshape(sums, (BM, BN // 16, 2, 8)), (0, 1, 3, 2))
        gate, up = tl.split(pairs)
        gated = tl.reshape(gate / (1.0 + tl.exp(-gate)) * up, (BM, BN // 2))
        _store(gated, out, first_output // 2, first_row, live, N // 2, BN // 2, BM, False)
    elif EPILOGUE == 4:
        sums = _store(sums, out, first_output, first_row, live, N, BN, BM, True)
        store_weighed(
            sums, factor, weighed, squares, first_row, first_output, live, N, BM, BN, BLOCK
        )  # fmt: skip
    elif BM * BN > 16384:
        # In halves: a large f32 tile takes all registers and much shared memory on its way out.
        halves = tl.permute(tl.reshape(sums, (BM, 2, BN // 2)), (0, 2, 1))
        left, right = tl.split(halves)
        _store(left, out, first_output, first_row, live, N, BN // 2, BM, EPILOGUE == 2)
        middle = first_output + BN // 2
        _store(right, out, middle, first_row, live, N, BN // 2, BM, EPILOGUE == 2)
    else:
        _store(sums, out, first_output, first_row, live, N, BN, BM, EPILOGUE == 2)


@triton.jit
def _factors(factor, first_output, N: tl.constexpr, BN: tl.constexpr):
    """What a tile's outputs are weighed by; weights, so read before anything is waited for."""
    output = first_output + tl.arange(0, BN)
    return tl.load(factor + output, mask=output < N, other=0.0)


@triton.jit
def _store(
    result, out, first_output, first_row, live, WIDTH: tl.constexpr, BN: tl.constexpr,
    BM: tl.constexpr, ACCUMULATE: tl.constexpr,
):  # fmt: skip
    rows = first_row + tl.arange(0, BM)
    outputs = first_output + tl.arange(0, BN)
    at = out + rows[:, None].to(tl.int64) * WIDTH + outputs[None, :]
    mask = (rows[:, None] < live) & (outputs[None, :] < WIDTH)
    if ACCUMULATE:
        result += tl.load(at, mask=mask, other=0.0)
    tl.store(at, result.to(out.dtype.element_ty), mask=mask)
    return result


@triton.jit
def project_few(
    rows, x, w, bias, out, factor, weighed, squares, partials, arrivals, epsilon, N: tl.constexpr,
    K: tl.constexpr, SPLITS: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    ROWS_FIRST: tl.constexpr, EPILOGUE: tl.constexpr, BIAS: tl.constexpr, SETTLED: tl.constexpr,
    BLOCKS: tl.constexpr, PADDED_BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Grid (⌈N / BN⌉, SPLITS, ⌈capacity / BM⌉); a part a CTA.

    `partials` f32 [SPLITS, ⌈capacity / BM⌉, ⌈N / BN⌉, BM, BN] is scratch; `arrivals` i32, one a
    tile, is zero before the first launch and again after each. With one part neither is touched.
    """
    tile_n = tl.program_id(0)
    part = tl.program_id(1)
    tile_m = tl.program_id(2)
    first_output = tile_n * BN
    first_row = tile_m * BM
    factors = factor
    if EPILOGUE == 4:
        factors = _factors(factor, first_output, N, BN)
    if not SETTLED:
        gdc_wait()
    live = tl.load(rows)
    if SETTLED:
        gdc_wait()
    if first_row < live:
        if BLOCKS > 0:
            row = first_row + tl.arange(0, BM)
            read = read_squares(squares, row, row < live, BLOCKS, PADDED_BLOCKS)
        sums = _accumulate(
            x, w, first_output, first_row, live, part * (K // SPLITS), N, K, K // SPLITS, BN, BM,
            BK, ROWS_FIRST,
        )  # fmt: skip
        gdc_launch_dependents()
        if SPLITS == 1:
            if BLOCKS > 0:
                sums *= inverse_roots(read, epsilon, K, BM, PADDED_BLOCKS)
            finish(
                sums, bias, out, factors, weighed, squares, first_output, first_row, live, N, BN,
                BM, EPILOGUE, BIAS, BLOCK,
            )  # fmt: skip
        else:
            tile = tile_m * tl.num_programs(0) + tile_n
            tiles = tl.num_programs(2) * tl.num_programs(0)
            inner = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
            mine = partials + (part * tiles + tile).to(tl.int64) * (BN * BM)
            tl.store(mine + inner, sums)
            tl.debug_barrier()  # every thread's part is stored before the arrival is counted
            if tl.atomic_add(arrivals + tile, 1, sem="acq_rel") == SPLITS - 1:
                total = tl.zeros((BM, BN), dtype=tl.float32)
                for other in tl.static_range(SPLITS):
                    at = partials + (other * tiles + tile).to(tl.int64) * (BN * BM)
                    total += tl.load(at + inner)
                if BLOCKS > 0:
                    total *= inverse_roots(read, epsilon, K, BM, PADDED_BLOCKS)
                finish(
                    total, bias, out, factors, weighed, squares, first_output, first_row, live, N,
                    BN, BM, EPILOGUE, BIAS, BLOCK,
                )  # fmt: skip
                tl.store(arrivals + tile, 0)


@triton.jit
def project_many(
    rows, x, w, bias, out, factor, weighed, squares, epsilon, N: tl.constexpr, K: tl.constexpr,
    SPLITS: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr, FLATTEN: tl.constexpr, ROWS_FIRST: tl.constexpr, EPILOGUE: tl.constexpr,
    BIAS: tl.constexpr, SETTLED: tl.constexpr, BLOCKS: tl.constexpr, PADDED_BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Any grid of one axis, ⌈N / BN⌉ · ⌈capacity / BM⌉ at most; all parts of a tile in its CTA.

    `x` and `w` are tensor maps over [capacity, K] and [N, K] with boxes [BM, BK] and [BN, BK].
    `GROUP` row tiles pass over the weights together, so that both operands stay in the L2 cache.
    """
    if not SETTLED:
        gdc_wait()
    live = tl.load(rows)
    if SETTLED:
        gdc_wait()
    tiles_m = tl.cdiv(live, BM)
    per_group = GROUP * tl.cdiv(N, BN)
    tiles = tiles_m * tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
        group = tile // per_group
        inside = tile % per_group
        size = tl.minimum(tiles_m - group * GROUP, GROUP)
        first_row = (group * GROUP + inside % size) * BM
        first_output = inside // size * BN
        factors = factor
        if EPILOGUE == 4:
            factors = _factors(factor, first_output, N, BN)
        if BLOCKS > 0:
            row = first_row + tl.arange(0, BM)
            read = read_squares(squares, row, row < live, BLOCKS, PADDED_BLOCKS)
        total = tile_sums(x, w, first_output, first_row, K, SPLITS, BN, BM, BK, ROWS_FIRST)
        total = total if ROWS_FIRST else tl.trans(total)
        if BLOCKS > 0:
            total *= inverse_roots(read, epsilon, K, BM, PADDED_BLOCKS)
        finish(
            total, bias, out, factors, weighed, squares, first_output, first_row, live, N, BN, BM,
            EPILOGUE, BIAS, BLOCK,
        )  # fmt: skip
    gdc_launch_dependents()


@triton.jit
def tile_sums(
    x, w, first_output, first_row, K: tl.constexpr, SPLITS: tl.constexpr, BN: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr, ROWS_FIRST: tl.constexpr,
):  # fmt: skip
    """A tile's sums over all parts, through tensor maps, which read zeros past the end.

    A last block that is partly past it adds products of zeros, which changes no sum.
    """
    if ROWS_FIRST:
        sums = tl.zeros((BM, BN), dtype=tl.float32)
    else:
        sums = tl.zeros((BN, BM), dtype=tl.float32)
    total = sums
    for block in range(tl.cdiv(K, BK)):
        k = block * BK
        if ROWS_FIRST:
            sums = tl.dot(x.load([first_row, k]), w.load([first_output, k]).T, sums)
        else:
            sums = tl.dot(w.load([first_output, k]), x.load([first_row, k]).T, sums)
        if SPLITS > 1:  # noqa: SIM102 (one of the two is known to the compiler)
            # One loop over all parts: its loads run ahead across them.
            if (block + 1) % (K // SPLITS // BK) == 0:
                total += sums
                sums = tl.zeros_like(sums)
    return total if SPLITS > 1 else sums
