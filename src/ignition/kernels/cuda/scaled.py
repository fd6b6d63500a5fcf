"""Projections x Wᵀ by weights of 8-bit codes with scales, in one order for every number of rows.

Codes, int8 or e4m3, are bf16 numbers: they become such in registers, exactly, and are multiplied
by the tensor cores as `projection` does. The order of an output's sum, whatever the tile:

- int8: products of a block of 128 inputs enter an f32 accumulator from zero, ascending; that sum
  times the block's scale is added to the total with one rounding (fma), blocks ascending.
- e4m3: products of the whole row enter one accumulator, ascending; the sum is multiplied by the
  row's scale.

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
    x, w, scales, first_output, first_row, N: tl.constexpr, K: tl.constexpr, BN: tl.constexpr,
    BM: tl.constexpr, FP8: tl.constexpr,
):  # fmt: skip
    """A tile's scaled sums [BN, BM]. Past a row's end maps read zeros, which change no sum."""
    # Outputs past the end take the last one's scales; their sums go nowhere.
    scale_at = scales + tl.minimum(first_output + tl.arange(0, BN), N - 1)
    total = tl.zeros((BN, BM), dtype=tl.float32)
    scale = tl.load(scale_at)
    for block in range(tl.cdiv(K, 128)):
        k = block * 128
        codes = w.load([first_output, k])
        columns = x.load([first_row, k]).T
        if FP8:
            total = tl.dot(e4m3_numbers(codes), columns, total)
        else:
            # The next block's are on their way while this one is multiplied.
            scale_at += tl.where(k + 128 < K, N, 0)
            following = tl.load(scale_at)
            total = tl.fma(
                tl.dot(int8_numbers(codes), columns),
                tl.broadcast_to(scale[:, None], (BN, BM)),
                total,
            )
            scale = following
    if FP8:
        total *= scale[:, None]
    return total


@triton.jit
def project_scaled(
    rows, x, w, weight, bias, out, N: tl.constexpr, K: tl.constexpr, BN: tl.constexpr,
    BM: tl.constexpr, GROUP: tl.constexpr, FP8: tl.constexpr, EPILOGUE: tl.constexpr,
    BIAS: tl.constexpr, SETTLED: tl.constexpr,
):  # fmt: skip
    """Grid ⌈N / BN⌉ · ⌈capacity / BM⌉ at most. `SETTLED` as in `projection`.

    `x` and `w` are tensor maps over bf16 [capacity, K] and u8 [N, K] with boxes [BM, 128] and
    [BN, 128]. `weight` is the address of the same codes; behind them lie the scales, f32
    [⌈K / 128⌉, N], or [N] where codes are e4m3. `GROUP` row tiles pass over the weights together.
    """
    if not SETTLED:
        gdc_wait()
    live = tl.load(rows)
    if SETTLED:
        gdc_wait()
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
        sums = _sums(x, w, scales, first_output, first_row, N, K, BN, BM, FP8)
        finish(
            tl.trans(sums), bias, out, out, out, out, first_output, first_row, live, N, BN, BM,
            EPILOGUE, BIAS, 1,
        )  # fmt: skip
    gdc_launch_dependents()
