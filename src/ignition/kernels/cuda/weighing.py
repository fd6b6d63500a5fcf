"""Norms that are finished after the product: a row is weighed, multiplied, and only then scaled.

x · weight goes to the tensor cores as it is, in bf16, whose exponents are f32's; the sums of the
row's squares go beside it, and the projection multiplies its sums by 1 / sqrt(mean + epsilon). So
what ends with a row can weigh it without knowing the row's other columns, and a norm needs no
launch of its own.

A row's squares are added by neighbours within blocks of columns, which a CTA has as a whole, and
blocks, padded with zeros to a power of two, in halves: an order that a row's width alone decides,
however many columns a CTA has and whoever adds the blocks.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def block_sums(x, ROWS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Sums [ROWS, WIDTH / BLOCK] of blocks of x [ROWS, WIDTH], by neighbours; powers of two."""
    # Four neighbours lie in one thread where rows are read.
    even, odd = tl.split(tl.reshape(x, (ROWS, WIDTH // 2, 2)))
    even, odd = tl.split(tl.reshape(even + odd, (ROWS, WIDTH // 4, 2)))
    sums = even + odd
    for step in tl.static_range(2, 16):
        if BLOCK >> step > 1:
            sums = tl.sum(tl.reshape(sums, (ROWS, WIDTH >> step + 1, 2)), 2)
    return sums


@triton.jit
def halved(x, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Sums [ROWS, 1] of x [ROWS, WIDTH], in halves; powers of two."""
    sums = x
    for step in tl.static_range(16):
        if WIDTH >> step > 1:
            sums = tl.sum(tl.reshape(sums, (ROWS, 2, WIDTH >> step + 1)), 1)
    return sums


@triton.jit
def read_squares(
    squares, row, present, BLOCKS: tl.constexpr, PADDED: tl.constexpr
):  # fmt: skip
    """Sums of squares of rows, f32 [.., PADDED], PADDED the power of two at or above BLOCKS. Read
    before the products and added after them, so that nothing waits for them."""
    block = tl.arange(0, PADDED)
    at = row.to(tl.int64)[:, None] * BLOCKS + block[None, :]
    return tl.load(squares + at, mask=present[:, None] & (block < BLOCKS)[None, :], other=0.0)


@triton.jit
def inverse_roots(sums, epsilon, WIDTH: tl.constexpr, ROWS: tl.constexpr, PADDED: tl.constexpr):
    """What rows of `WIDTH` elements are scaled by, [ROWS, 1], of what `read_squares` read. The
    chip's own root, which a division and an exact one would take a tile's registers for."""
    SHARE: tl.constexpr = 1.0 / WIDTH
    return tl.rsqrt(halved(sums, ROWS, PADDED) * SHARE + epsilon)


@triton.jit
def store_weighed(
    values, factor, weighed, squares, first_row, first_column, live, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Weighs a tile of rows, f32 [ROWS, COLUMNS], by `factor` [COLUMNS]; of whole blocks, as
    WIDTH is."""
    row = first_row + tl.arange(0, ROWS)
    column = first_column + tl.arange(0, COLUMNS)
    inside = (row < live)[:, None] & (column < WIDTH)[None, :]
    at = row.to(tl.int64)[:, None] * WIDTH + column[None, :]
    tl.store(weighed + at, (values * factor[None, :]).to(weighed.dtype.element_ty), mask=inside)
    sums = block_sums(values * values, ROWS, COLUMNS, BLOCK)
    block = first_column // BLOCK + tl.arange(0, COLUMNS // BLOCK)
    inside = (row < live)[:, None] & (block < WIDTH // BLOCK)[None, :]
    at = row.to(tl.int64)[:, None] * (WIDTH // BLOCK) + block[None, :]
    tl.store(squares + at, sums, mask=inside)


@triton.jit
def weigh_row(
    values, factor, weighed, squares, row, WIDTH: tl.constexpr, PADDED: tl.constexpr,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Weighs a row, f32 [PADDED], zeros from WIDTH on; writes a sum of squares for each block, or
    one where BLOCKS is 1."""
    column = tl.arange(0, PADDED)
    at = weighed + row * WIDTH + column
    tl.store(at, (values * factor).to(weighed.dtype.element_ty), mask=column < WIDTH)
    sums = block_sums(tl.reshape(values * values, (1, PADDED)), 1, PADDED, BLOCK)
    if BLOCKS == 1:
        sums = halved(sums, 1, PADDED // BLOCK)
        tl.store(squares + row + tl.zeros((1, 1), tl.int64), sums)
    else:
        block = tl.arange(0, PADDED // BLOCK)[None, :]
        tl.store(squares + row * BLOCKS + block, sums, mask=block < BLOCKS)


@triton.jit
def weigh(
    rows, x, weight, out, squares, WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):  # fmt: skip
    """Grid (capacity): a row a program, read before it is known to be live. x and weight f32, out
    bf16, squares f32 [capacity, BLOCKS]; PADDED the power of two at or above WIDTH."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, PADDED)
    inside = column < WIDTH
    factor = tl.load(weight + column, mask=inside, other=0.0)
    gdc_wait()
    gdc_launch_dependents()
    live = tl.load(rows)
    values = tl.load(x + row * WIDTH + column, mask=inside, other=0.0)
    if row < live:
        weigh_row(values, factor, out, squares, row, WIDTH, PADDED, BLOCK, BLOCKS)
