"""Asks for memory before it is needed: brings bytes into the L2 cache, and nothing else.

What arrives is not read, so it may be asked for before `gdc_wait`, whoever writes it.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Threads that share a tile's bytes, 16 a piece at least.
_ASKERS: tl.constexpr = tl.constexpr(128)


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
def bring_rows(matrix, first_row, rows, ROW_NBYTES: tl.constexpr):
    """Whole rows of a row-major matrix, which lie one after the other, in equal pieces."""
    nbytes = rows * ROW_NBYTES
    piece = tl.cdiv(nbytes, _ASKERS * 16) * 16
    start = tl.arange(0, _ASKERS) * piece
    first = matrix.to(tl.int64, bitcast=True) + first_row.to(tl.int64) * ROW_NBYTES
    bring(first + start, tl.minimum(nbytes - start, piece))
