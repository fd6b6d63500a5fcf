"""Asks for memory before it is needed: brings bytes into the L2 cache, and nothing else.

What arrives is not read, so it may be asked for before `gdc_wait`, whoever writes it.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def bring(address, nbytes):
    """Each element of `address` (a multiple of 16) with its `nbytes` (a multiple of 16, none where
    not positive) into L2."""
    tl.inline_asm_elementwise(
        """{
        .reg .pred p;
        setp.gt.s32 p, $2, 0;
        @p cp.async.bulk.prefetch.L2.global [$1], $2;
        mov.b32 $0, 0;
        }""",
        "=r,l,r",
        [address, nbytes],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def bring_rows(
    matrix, first_row, end, ROWS: tl.constexpr, ROW_NBYTES: tl.constexpr, NBYTES: tl.constexpr
):  # fmt: skip
    """The first `NBYTES` of each of `ROWS` rows from `first_row` on, those before row `end`; ROWS a
    power of two up to 128, a thread a piece of a row."""
    EACH: tl.constexpr = 128 // ROWS
    PIECE: tl.constexpr = (NBYTES + 16 * EACH - 1) // (16 * EACH) * 16
    thread = tl.arange(0, 128)
    row = first_row + thread // EACH
    start = thread % EACH * PIECE
    address = matrix.to(tl.int64, bitcast=True) + row.to(tl.int64) * ROW_NBYTES + start
    bring(address, tl.where(row < end, tl.minimum(NBYTES - start, PIECE), 0))
