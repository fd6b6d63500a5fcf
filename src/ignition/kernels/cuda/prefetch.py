"""Asks for memory before it is needed: brings lines of 128 bytes into the L2 cache, nothing else.

What arrives is not read, so it may be asked for before `gdc_wait`, whoever writes it. (The bulk
instruction for this takes one address a warp at a time; a line a thread is faster.)
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def bring(address, wanted):
    """The line of each address where it is wanted."""
    tl.inline_asm_elementwise(
        """{
        .reg .pred p;
        setp.ne.s32 p, $2, 0;
        @p prefetch.global.L2 [$1];
        mov.b32 $0, 0;
        }""",
        "=r,l,r",
        [address, wanted.to(tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def bring_rows(
    matrix, first_row, end, ROWS: tl.constexpr, ROW_NBYTES: tl.constexpr, NBYTES: tl.constexpr
):  # fmt: skip
    """The first `NBYTES` of each of `ROWS` rows from `first_row` on, those before row `end`: all of
    them, which lie one after the other, or whole lines."""
    WHOLE: tl.constexpr = NBYTES >= ROW_NBYTES
    EACH: tl.constexpr = NBYTES // 128  # lines of a row
    LINES: tl.constexpr = (ROWS * ROW_NBYTES + 127) // 128 if WHOLE else ROWS * EACH
    first = matrix.to(tl.int64, bitcast=True) + first_row.to(tl.int64) * ROW_NBYTES
    left = (end - first_row) * ROW_NBYTES
    for step in tl.static_range((LINES + 127) // 128):
        line = step * 128 + tl.arange(0, 128)
        start = line * 128 if WHOLE else line // EACH * ROW_NBYTES + line % EACH * 128
        bring(first + start, (line < LINES) & (start < left))


@triton.jit
def bring_blocks(plane, numbers, wanted, NBYTES: tl.constexpr):
    """Blocks of `NBYTES`, which lie one after the other in a plane, by their numbers [128]; thread
    i asks for the part of block i that is left to it: a 32nd, from its place among 32 on."""
    first = plane.to(tl.int64, bitcast=True) + numbers * NBYTES
    for step in tl.static_range((NBYTES + 4095) // 4096):
        start = (step * 32 + tl.arange(0, 128) % 32) * 128
        bring(first + start, wanted & (start < NBYTES))
