"""8-bit codes: a row of them as f32, and as the bf16 numbers that they stand for, two at a time.

What the compiler makes of plain conversions takes twice to four times the instructions, more than
there is time for while weights arrive. Two codes are an operand, as they are read from shared
memory: four would be taken apart and put together again.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def look_up(table, token, column, mask, vocab, WIDTH: tl.constexpr):
    """f32 elements `column` of a token's row of `table`, bf16 or int8 codes (u8) [vocab, WIDTH];
    zeros where `mask` isn't. Behind codes lie their scales, f32 [⌈WIDTH / 128⌉, vocab]; a product
    of the two is rounded."""
    found = tl.load(table + token.to(tl.int64) * WIDTH + column, mask=mask, other=0)
    if table.dtype.element_ty == tl.uint8:
        scales = (table + vocab.to(tl.int64) * WIDTH).to(tl.pointer_type(tl.float32), bitcast=True)
        scale = tl.load(scales + column // 128 * vocab + token, mask=mask, other=0.0)
        return found.to(tl.int8, bitcast=True).to(tl.float32) * scale
    return found.to(tl.float32)


@triton.jit
def int8_numbers(codes):
    """bf16 of codes (u8) that are two's complement.

    128 plus the lower seven bits is a bf16 number whose bits are those beside each other; 128 is
    taken away again, or 256 where the sign is set.
    """
    return tl.inline_asm_elementwise(
        """{
        .reg .b32 wide, low, sign;
        cvt.u32.u16 wide, $1;
        prmt.b32 wide, wide, 0, 0x4140;
        lop3.b32 low, wide, 0x007F007F, 0x43004300, 0xEA;
        lop3.b32 sign, wide, 0x00800080, 0x43004300, 0xEA;
        sub.bf16x2 $0, low, sign;
        }""",
        "=r,h",
        [codes],
        dtype=tl.bfloat16,
        is_pure=True,
        pack=2,
    )


@triton.jit
def e4m3_numbers(codes):
    """bf16 of e4m3 codes (u8), NaN aside.

    Sign, exponent and fraction in the places that bf16 has for them; its exponents begin 120
    lower. e4m3's subnormal numbers are then bf16's, so that one product is right for all.
    """
    return tl.inline_asm_elementwise(
        """{
        .reg .b32 high, size, factor;
        mov.b32 factor, 0x7B807B80;
        cvt.u32.u16 high, $1;
        prmt.b32 high, high, 0, 0x1404;
        and.b32 size, high, 0x7F007F00;
        shr.u32 size, size, 4;
        lop3.b32 size, high, 0x80008000, size, 0xEA;
        mul.bf16x2 $0, size, factor;
        }""",
        "=r,h",
        [codes],
        dtype=tl.bfloat16,
        is_pure=True,
        pack=2,
    )
