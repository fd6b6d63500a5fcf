"""Projections of few rows by small matrices: the parts of a reduction side by side.

A tile's parts have an accumulator each, so that their chains of dependent products run together,
and are added in ascending order: the bits are those of `projection`, which keeps them in CTAs of
their own or one after the other.

Made for models whose layers take microseconds: blocks are narrow, so that many CTAs share the
weights, and before it waits for the launch before it a CTA asks for its weights. Every element of
a row below `capacity` may be read, whether the row is live or not; what comes of it isn't stored.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ignition.kernels.cuda.prefetch import bring_rows
from ignition.kernels.cuda.weighing import inverse_roots, read_squares, store_weighed

# Values of EPILOGUE, as in `projection`.
BF16 = 0
F32 = 1
ADD = 2
SILU_MUL = 3
ADD_WEIGHED = 4


@triton.jit
def _read(row_at, k, end, mask, WHOLE: tl.constexpr):
    """A block of rows, inputs `k`; zeros from `end` on, and where `mask` isn't."""
    at = row_at[:, None] + k[None, :]
    if WHOLE:
        return tl.load(at, mask=mask[:, None], other=0.0)
    return tl.load(at, mask=mask[:, None] & (k < end)[None, :], other=0.0)


@triton.jit
def _step(
    sums, x_at, w_at, present, in_matrix, k, end, ROWS_FIRST: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """`sums` and the products of inputs `k`."""
    w = _read(w_at, k, end, in_matrix, WHOLE)
    x = _read(x_at, k, end, present, WHOLE)
    return tl.dot(x, w.T, sums) if ROWS_FIRST else tl.dot(w, x.T, sums)


@triton.jit
def _looped(
    x_at, w_at, present, in_matrix, K: tl.constexpr, PARTS: tl.constexpr, BN: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr, ROWS_FIRST: tl.constexpr,
):  # fmt: skip
    """The sums, of blocks that are loaded some steps before they are multiplied."""
    PART: tl.constexpr = K // PARTS
    WHOLE: tl.constexpr = PART % BK == 0
    sums = tl.zeros((BM, BN) if ROWS_FIRST else (BN, BM), dtype=tl.float32)
    second = sums
    third = sums
    fourth = sums
    for block in range((PART + BK - 1) // BK):
        k = block * BK + tl.arange(0, BK)
        sums = _step(sums, x_at, w_at, present, in_matrix, k, PART, ROWS_FIRST, WHOLE)
        if PARTS > 1:
            second = _step(
                second, x_at, w_at, present, in_matrix, PART + k, 2 * PART, ROWS_FIRST, WHOLE
            )  # fmt: skip
        if PARTS > 2:
            third = _step(
                third, x_at, w_at, present, in_matrix, 2 * PART + k, 3 * PART, ROWS_FIRST, WHOLE
            )  # fmt: skip
        if PARTS > 3:
            fourth = _step(
                fourth, x_at, w_at, present, in_matrix, 3 * PART + k, 4 * PART, ROWS_FIRST, WHOLE
            )  # fmt: skip
    if PARTS > 1:
        sums += second
    if PARTS > 2:
        sums += third
    if PARTS > 3:
        sums += fourth
    return sums


@triton.jit
def _stored(
    sums, residual, bias, to, mask, first_output, N: tl.constexpr, BN: tl.constexpr,
    BM: tl.constexpr, EPILOGUE: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """Adds the bias to sums [BM, BN] and stores what the epilogue makes of them."""
    if BIAS:
        added = first_output + tl.arange(0, BN)
        sums += tl.load(bias + added, mask=added < N, other=0.0)[None, :]
    if EPILOGUE == 3:
        pairs = tl.permute(tl.reshape(sums, (BM, BN // 16, 2, 8)), (0, 1, 3, 2))
        gate, up = tl.split(pairs)
        sums = tl.reshape(gate / (1.0 + tl.exp(-gate)) * up, (BM, BN // 2))
    if (EPILOGUE == 2) | (EPILOGUE == 4):
        sums += residual
    tl.store(to, sums.to(to.dtype.element_ty), mask=mask)
    return sums


@triton.jit
def project_narrow(
    rows, x, w, bias, out, factor, weighed, squares, capacity, epsilon, N: tl.constexpr,
    K: tl.constexpr, PARTS: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    ROWS_FIRST: tl.constexpr, EPILOGUE: tl.constexpr, BIAS: tl.constexpr, ASK: tl.constexpr,
    EARLY: tl.constexpr, BLOCKS: tl.constexpr, PADDED_BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Grid (⌈N / BN⌉, ⌈capacity / BM⌉). x bf16 [capacity, K]; at most four PARTS. What is weighed
    is as in `projection`.

    `ASK`: bytes of each row of weights that are brought into the L2 cache before the wait. `EARLY`:
    the next launch may begin as soon as this one has waited, instead of after its products.
    """
    first_output = tl.program_id(0) * BN
    first_row = tl.program_id(1) * BM
    output = first_output + tl.arange(0, BN)
    row = first_row + tl.arange(0, BM)
    in_matrix = output < N
    w_at = w + output * K
    x_at = x + row * K
    if ASK:
        bring_rows(w, first_output, N, BN, 2 * K, ASK)
    if EPILOGUE == 4:
        factors = tl.load(factor + output, mask=in_matrix, other=0.0)
    gdc_wait()
    if EARLY:
        gdc_launch_dependents()
    live = tl.load(rows)
    # The first rows don't wait to hear whether they are live.
    if (tl.program_id(1) == 0) | (first_row < live):
        present = row < capacity
        WIDTH: tl.constexpr = N // 2 if EPILOGUE == 3 else N
        BW: tl.constexpr = BN // 2 if EPILOGUE == 3 else BN
        at_output = tl.program_id(0) * BW + tl.arange(0, BW)
        to = out + row[:, None].to(tl.int64) * WIDTH + at_output[None, :]
        in_width = (at_output < WIDTH)[None, :]
        if BLOCKS > 0:
            read = read_squares(squares, row, present, BLOCKS, PADDED_BLOCKS)
        residual = 0.0
        if (EPILOGUE == 2) | (EPILOGUE == 4):
            residual = tl.load(to, mask=present[:, None] & in_width, other=0.0)
        sums = _looped(x_at, w_at, present, in_matrix, K, PARTS, BN, BM, BK, ROWS_FIRST)
        if not EARLY:
            gdc_launch_dependents()
        sums = sums if ROWS_FIRST else tl.trans(sums)
        if BLOCKS > 0:
            sums *= inverse_roots(read, epsilon, K, BM, PADDED_BLOCKS)
        mask = (row < live)[:, None] & in_width
        sums = _stored(sums, residual, bias, to, mask, first_output, N, BN, BM, EPILOGUE, BIAS)
        if EPILOGUE == 4:
            store_weighed(
                sums, factors, weighed, squares, first_row, first_output, live, N, BM, BN, BLOCK
            )  # fmt: skip
