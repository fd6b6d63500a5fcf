"""Rows of the residual: looked up in the embedding table, and normalised.

A row's sum of squares is added in one order, fixed by its width alone, in every kernel that needs
it: the row, padded with zeros to a power of two, is folded in halves to 64 sums, those by
neighbours to 16, those in halves to one. Each step adds pairs, so neither the shape of a tile nor
the number of warps enters.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ignition.kernels.cuda.codes import look_up


@triton.jit
def row_sum(x, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Sums [ROWS] of x [ROWS, WIDTH], WIDTH a power of two."""
    sums = x
    for step in tl.static_range(16):
        if (WIDTH >> step == 64) | (WIDTH >> step == 32):
            sums = tl.sum(tl.reshape(sums, (ROWS, WIDTH >> step + 1, 2)), 2)
        elif WIDTH >> step > 1:
            sums = tl.sum(tl.reshape(sums, (ROWS, 2, WIDTH >> step + 1)), 1)
    return tl.reshape(sums, (ROWS,))


@triton.jit
def inverse_root(sum_of_squares, width, epsilon):
    """1 / sqrt(mean of squares + epsilon)."""
    return 1.0 / tl.sqrt_rn(sum_of_squares / width + epsilon)


@triton.jit
def inverse_rms(x, width, epsilon, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """`inverse_root` of each row of x [ROWS, WIDTH], zeros past `width`."""
    return inverse_root(row_sum(x * x, ROWS, WIDTH), width, epsilon)


@triton.jit
def embed(
    rows, tokens, table, out, vocab, scale, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Grid (capacity, ⌈WIDTH / BLOCK⌉). tokens i32, table as `look_up` takes it, out f32."""
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gdc_wait()
    gdc_launch_dependents()
    if row < tl.load(rows):
        token = tl.load(tokens + row)
        known = (token >= 0) & (token < vocab)
        inside = column < WIDTH
        found = look_up(table, token, column, inside & known, vocab, WIDTH)
        tl.store(out + row.to(tl.int64) * WIDTH + column, found * scale, mask=inside)


@triton.jit
def rms_norm(
    rows, x, weight, out, epsilon, WIDTH: tl.constexpr, PADDED: tl.constexpr
):  # fmt: skip
    """Grid (capacity): a row a program, read before it is known to be live. x and weight f32, out
    bf16 or f32; PADDED the power of two at or above WIDTH."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, PADDED)
    inside = column < WIDTH
    factor = tl.load(weight + column, mask=inside, other=0.0)
    gdc_wait()
    gdc_launch_dependents()
    live = tl.load(rows)
    values = tl.load(x + row * WIDTH + column, mask=inside, other=0.0)
    if row < live:
        inverse = inverse_rms(values[None, :], WIDTH, epsilon, 1, PADDED)
        result = values[None, :] * inverse[:, None] * factor[None, :]
        at = row * WIDTH + column[None, :]
        tl.store(out + at, result.to(out.dtype.element_ty), mask=inside[None, :])
