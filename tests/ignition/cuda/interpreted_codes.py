"""`ignition.kernels.cuda.codes` in terms that the interpreter knows."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def int8_numbers(codes):
    """bf16 of two's complement."""
    return codes.to(tl.int8, bitcast=True).to(tl.float32).to(tl.bfloat16)


@triton.jit
def e4m3_numbers(codes):
    """bf16 of e4m3."""
    bits = codes.to(tl.uint32)
    moved = ((bits & 0x80) << 24) | ((bits & 0x7F) << 20)
    return (moved.to(tl.float32, bitcast=True) * 2.0**120).to(tl.bfloat16)
