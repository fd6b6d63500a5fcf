"""Projections x Wᵀ by weights of 8-bit codes with scales, in one order for every number of rows.

Codes, int8 or e4m3, are bf16 numbers: they become such in registers, exactly, and are multiplied
by the tensor cores as `projection` does. The order of an output's sum, whatever the tile:

- The reduction is cut into `PARTS` of whole blocks of 128 inputs, as equal as they can be.
- int8: products of a block enter an f32 accumulator from zero, ascending; that sum times the
  block's scale is added to its part's total with one rounding (fma), blocks ascending.
- e4m3: a part's products enter one accumulator, ascending.
- The parts are added in ascending order; e4m3's sum is multiplied by the row's scale.

`PARTS` belongs to the matrix and is the same in every program. Few rows have a CTA for each part
(`APART`), so that the chain of products is short; parts then meet in a workspace, and whoever
arrives last adds them. With many rows a CTA goes through a tile's parts itself.

Then bias and epilogue, as in `projection`. Weights are always wgmma's 64-row operand, the one that
may come from registers. `scaled_tiles` chooses the blocks.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ignition.kernels.cuda.codes import e4m3_numbers, int8_numbers
from ignition.kernels.cuda.projection import finish


@triton.jit
def _sums(
    x, w, scales, first_output, first_row, first_block, blocks, N: tl.constexpr, K: tl.constexpr,
    PER_PART: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, FP8: tl.constexpr,
):  # fmt: skip
    """A tile's sums [BN, BM] over so many blocks, parts of `PER_PART` blocks added; e4m3's aren't
    scaled yet. Past a row's end maps read zeros, which change no sum."""
    total = tl.zeros((BN, BM), dtype=tl.float32)
    part = total
    if not FP8:
        # Outputs past the end take the last one's scales; their sums go nowhere.
        output = tl.minimum(first_output + tl.arange(0, BN), N - 1)
        scale_at = scales + first_block * N + output
        scale = tl.load(scale_at)
    for block in range(blocks):
        k = (first_block + block) * 128
        codes = w.load([first_output, k])
        columns = x.load([first_row, k]).T
        if FP8:
            part = tl.dot(e4m3_numbers(codes), columns, part)
        else:
            # The next block's are on their way while this one is multiplied.
            scale_at += tl.where(k + 128 < K, N, 0)
            following = tl.load(scale_at)
            part = tl.fma(
                tl.dot(int8_numbers(codes), columns),
                tl.broadcast_to(scale[:, None], (BN, BM)),
                part,
            )
            scale = following
        if PER_PART * 128 < K:  # noqa: SIM102 (one of the two is known to the compiler)
            if (block + 1) % PER_PART == 0 or block + 1 == blocks:
                total += part
                part = tl.zeros_like(part)
    return total if PER_PART * 128 < K else part


@triton.jit
def _row_scaled(sums, scales, first_output, N: tl.constexpr, BN: tl.constexpr):
    """Sums [BN, BM] times their rows' scales."""
    scale = tl.load(scales + tl.minimum(first_output + tl.arange(0, BN), N - 1))
    return sums * scale[:, None]


@triton.jit
def project_scaled(
    rows, x, w, weight, bias, out, partials, arrivals, N: tl.constexpr, K: tl.constexpr,
    PARTS: tl.constexpr, APART: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr,
    GROUP: tl.constexpr, FP8: tl.constexpr, EPILOGUE: tl.constexpr, BIAS: tl.constexpr,
    SETTLED: tl.constexpr,
):  # fmt: skip
    """Grid ⌈N / BN⌉ · ⌈capacity / BM⌉ at most, times `PARTS` on the second axis where they are
    `APART`. `SETTLED` as in `projection`.

    `x` and `w` are tensor maps over bf16 [capacity, K] and u8 [N, K] with boxes [BM, 128] and
    [BN, 128]. `weight` is the address of the same codes; behind them lie the scales, f32
    [⌈K / 128⌉, N], or [N] where codes are e4m3. `GROUP` row tiles pass over the weights together.
    `partials` f32 [PARTS, tiles, BN, BM] is scratch; `arrivals` i32, one a tile, is zero before the
    first launch and again after each. Neither is touched but where parts are apart.
    """
    if not SETTLED:
        gdc_wait()
    live = tl.load(rows)
    if SETTLED:
        gdc_wait()
    PER_PART: tl.constexpr = tl.cdiv(tl.cdiv(K, 128), PARTS)
    scales = (weight + N * K).to(tl.pointer_type(tl.float32), bitcast=True)
    tiles_m = tl.cdiv(live, BM)
    per_group = GROUP * tl.cdiv(N, BN)
    tiles = tiles_m * tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        group = tile // per_group
        inside = tile % per_group
        size = tl.minimum(tiles_m - group * GROUP, GROUP)
        first_row = (group * GROUP + inside % size) * BM
        first_output = inside // size * BN
        if APART:
            part = tl.program_id(1)
            first_block = part * PER_PART
            blocks = tl.minimum(tl.cdiv(K, 128) - first_block, PER_PART)
            sums = _sums(
                x, w, scales, first_output, first_row, first_block, blocks, N, K, tl.cdiv(K, 128),
                BN, BM, FP8,
            )  # fmt: skip
            inner = tl.arange(0, BN)[:, None] * BM + tl.arange(0, BM)[None, :]
            tl.store(partials + (part * tiles + tile).to(tl.int64) * (BN * BM) + inner, sums)
            tl.debug_barrier()  # every thread's part is stored before the arrival is counted
            if tl.atomic_add(arrivals + tile, 1, sem="acq_rel") == PARTS - 1:
                total = tl.zeros((BN, BM), dtype=tl.float32)
                for other in tl.static_range(PARTS):
                    at = partials + (other * tiles + tile).to(tl.int64) * (BN * BM)
                    total += tl.load(at + inner)
                if FP8:
                    total = _row_scaled(total, scales, first_output, N, BN)
                finish(
                    tl.trans(total), bias, out, out, out, out, first_output, first_row, live, N,
                    BN, BM, EPILOGUE, BIAS, 1,
                )  # fmt: skip
                tl.store(arrivals + tile, 0)
        else:
            sums = _sums(
                x, w, scales, first_output, first_row, 0, tl.cdiv(K, 128), N, K, PER_PART, BN, BM,
                FP8,
            )  # fmt: skip
            if FP8:
                sums = _row_scaled(sums, scales, first_output, N, BN)
            finish(
                tl.trans(sums), bias, out, out, out, out, first_output, first_row, live, N, BN, BM,
                EPILOGUE, BIAS, 1,
            )  # fmt: skip
    gdc_launch_dependents()
