"""Projections x Wᵀ with fused epilogues, in one accumulation order for every number of rows.

The order of an output's sum, whatever the tile: the reduction is cut into `SPLITS` equal parts;
within a part products enter one f32 accumulator sixteen at a time, ascending (one wgmma chain, no
matter how long a block is); the parts are added in ascending order. `SPLITS` belongs to the weight
matrix and is the same in every program. Two kernels share the order and the epilogue:

- `project_few` puts each part into a CTA of its own, for the CTAs that few rows don't give. Parts
  meet in a workspace; whoever arrives last adds them, in order, not in order of arrival.
- `project_many` keeps a tile's parts in one CTA and adds the accumulator to the total after each.

In both the weights are the 64-row operand of wgmma and the activations' rows its other one, which
may be as narrow as 8. `docs/cuda.md` says what was measured. `tiles` chooses the blocks.

Shapes: x bf16 [capacity, K], w bf16 [N, K], `rows` i32[1] the live rows, out [capacity, N].
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

# Values of EPILOGUE.
BF16 = 0  # out bf16
F32 = 1  # out f32
ADD = 2  # out f32 += x Wᵀ, the residual
SILU_MUL = 3  # out bf16 [capacity, N / 2]: silu(gate) · up; w alternates 8 gate rows and 8 up rows


@triton.jit
def _accumulate(
    x,
    w,
    first_output,
    first_row,
    live,
    first_k,
    N: tl.constexpr,
    K: tl.constexpr,
    PART: tl.constexpr,
    BN: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
):
    """One part's sums [BN, BM], k from `first_k` for `PART` products."""
    outputs = first_output + tl.arange(0, BN)
    rows = first_row + tl.arange(0, BM)
    ks = first_k + tl.arange(0, BK)
    # Rows and outputs past the end read the last one: their sums go nowhere.
    if N % BN != 0:
        outputs = tl.minimum(outputs, N - 1)
    rows = tl.minimum(rows, live - 1)
    w_at = w + outputs[:, None] * K + ks[None, :]
    x_at = x + rows[None, :] * K + ks[:, None]
    sums = tl.zeros((BN, BM), dtype=tl.float32)
    for _ in range(PART // BK):
        sums = tl.dot(tl.load(w_at), tl.load(x_at), sums)
        w_at += BK
        x_at += BK
    return sums


@triton.jit
def _finish(
    sums,
    bias,
    out,
    first_output,
    first_row,
    live,
    N: tl.constexpr,
    BN: tl.constexpr,
    BM: tl.constexpr,
    EPILOGUE: tl.constexpr,
    BIAS: tl.constexpr,
):
    """Adds the bias and stores [BN, BM] sums transposed, as the epilogue says."""
    rows = first_row + tl.arange(0, BM)
    width: tl.constexpr = N // 2 if EPILOGUE == 3 else N
    if BIAS:
        at = first_output + tl.arange(0, BN)
        sums += tl.load(bias + at, mask=at < N, other=0.0)[:, None]
    if EPILOGUE == 3:
        pairs = tl.permute(tl.reshape(sums, (BN // 16, 2, 8, BM)), (0, 2, 3, 1))
        gate, up = tl.split(pairs)
        gated = gate / (1.0 + tl.exp(-gate)) * up
        result = tl.reshape(gated, (BN // 2, BM))
        outputs = first_output // 2 + tl.arange(0, BN // 2)
    else:
        result = sums
        outputs = first_output + tl.arange(0, BN)
    at = out + rows[:, None].to(tl.int64) * width + outputs[None, :]
    mask = (rows[:, None] < live) & (outputs[None, :] < width)
    result = tl.trans(result)
    if EPILOGUE == 2:
        result += tl.load(at, mask=mask, other=0.0)
    tl.store(at, result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def project_few(
    rows,
    x,
    w,
    bias,
    out,
    partials,
    arrivals,
    N: tl.constexpr,
    K: tl.constexpr,
    SPLITS: tl.constexpr,
    BN: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    EPILOGUE: tl.constexpr,
    BIAS: tl.constexpr,
):
    """Grid (⌈N / BN⌉, SPLITS, ⌈capacity / BM⌉); a part a CTA.

    `partials` f32 [SPLITS, ⌈capacity / BM⌉, ⌈N / BN⌉, BN, BM] is scratch; `arrivals` i32, one a
    tile, is zero before the first launch and again after each.
    """
    tile_n = tl.program_id(0)
    part = tl.program_id(1)
    tile_m = tl.program_id(2)
    gdc_wait()
    live = tl.load(rows)
    if tile_m * BM < live:
        sums = _accumulate(
            x,
            w,
            tile_n * BN,
            tile_m * BM,
            live,
            part * (K // SPLITS),
            N,
            K,
            K // SPLITS,
            BN,
            BM,
            BK,
        )
        gdc_launch_dependents()
        if SPLITS == 1:
            _finish(sums, bias, out, tile_n * BN, tile_m * BM, live, N, BN, BM, EPILOGUE, BIAS)
        else:
            tiles_n = tl.num_programs(0)
            tile = tile_m * tiles_n + tile_n
            tiles = tl.num_programs(2) * tiles_n
            inner = tl.arange(0, BN)[:, None] * BM + tl.arange(0, BM)[None, :]
            mine = partials + (part * tiles + tile).to(tl.int64) * (BN * BM)
            tl.store(mine + inner, sums)
            tl.debug_barrier()  # every thread's part is stored before the arrival is counted
            if tl.atomic_add(arrivals + tile, 1, sem="acq_rel") == SPLITS - 1:
                total = tl.load(partials + tile.to(tl.int64) * (BN * BM) + inner)
                for other in tl.static_range(1, SPLITS):
                    at = partials + (other * tiles + tile).to(tl.int64) * (BN * BM)
                    total += tl.load(at + inner)
                _finish(total, bias, out, tile_n * BN, tile_m * BM, live, N, BN, BM, EPILOGUE, BIAS)
                tl.store(arrivals + tile, 0)


@triton.jit
def project_many(
    rows,
    x,
    w,
    bias,
    out,
    capacity,
    N: tl.constexpr,
    K: tl.constexpr,
    SPLITS: tl.constexpr,
    BN: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    EPILOGUE: tl.constexpr,
    BIAS: tl.constexpr,
):
    """Grid (⌈N / BN⌉ · ⌈capacity / BM⌉); all parts of a tile in its CTA.

    `GROUP` row tiles pass over the weights together, so that both operands stay in the L2 cache.
    """
    tile_m, tile_n = _grouped(capacity, N, BN, BM, GROUP)
    gdc_wait()
    live = tl.load(rows)
    if tile_m * BM < live:
        total = _accumulate(x, w, tile_n * BN, tile_m * BM, live, 0, N, K, K // SPLITS, BN, BM, BK)
        for part in tl.static_range(1, SPLITS):
            total += _accumulate(
                x,
                w,
                tile_n * BN,
                tile_m * BM,
                live,
                part * (K // SPLITS),
                N,
                K,
                K // SPLITS,
                BN,
                BM,
                BK,
            )
        gdc_launch_dependents()
        _finish(total, bias, out, tile_n * BN, tile_m * BM, live, N, BN, BM, EPILOGUE, BIAS)


@triton.jit
def project_many_described(
    rows,
    x,
    w,
    bias,
    out,
    capacity,
    N: tl.constexpr,
    K: tl.constexpr,
    SPLITS: tl.constexpr,
    BN: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    EPILOGUE: tl.constexpr,
    BIAS: tl.constexpr,
):
    """As `project_many`; `x` and `w` are tensor maps with boxes [BM, BK] and [BN, BK]."""
    tile_m, tile_n = _grouped(capacity, N, BN, BM, GROUP)
    gdc_wait()
    live = tl.load(rows)
    if tile_m * BM < live:
        total = tl.zeros((BN, BM), dtype=tl.float32)
        for part in tl.static_range(SPLITS):
            sums = tl.zeros((BN, BM), dtype=tl.float32)
            for block in range(K // SPLITS // BK):
                k = part * (K // SPLITS) + block * BK
                sums = tl.dot(w.load([tile_n * BN, k]), x.load([tile_m * BM, k]).T, sums)
            total = sums if part == 0 else total + sums
        gdc_launch_dependents()
        _finish(total, bias, out, tile_n * BN, tile_m * BM, live, N, BN, BM, EPILOGUE, BIAS)


@triton.jit
def _grouped(capacity, N: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, GROUP: tl.constexpr):
    """This program's (row tile, output tile): groups of GROUP row tiles, outputs outer in them."""
    tiles_m = tl.cdiv(capacity, BM)
    per_group = GROUP * tl.cdiv(N, BN)
    group = tl.program_id(0) // per_group
    inside = tl.program_id(0) % per_group
    size = tl.minimum(tiles_m - group * GROUP, GROUP)
    return group * GROUP + inside % size, inside // size
