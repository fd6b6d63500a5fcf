"""Philox4x32-10 on the device: random numbers keyed by (request seed, token position, purpose)."""

from __future__ import annotations

import triton
import triton.language as tl

_WORD: tl.constexpr = tl.constexpr(0xFFFFFFFF)
_MULTIPLIER_0: tl.constexpr = tl.constexpr(0xD2511F53)
_MULTIPLIER_1: tl.constexpr = tl.constexpr(0xCD9E8D57)
_STEP_0: tl.constexpr = tl.constexpr(0x9E3779B9)
_STEP_1: tl.constexpr = tl.constexpr(0xBB67AE85)
_UNIT: tl.constexpr = tl.constexpr(2.0**-53)


@triton.jit
def uniform(seed_low, seed_high, position):
    """The number in [0, 1) of 53 random bits, f64, with which the token at `position` is sampled
    (purpose 0). Words are the low halves of i64, so that products are whole."""
    k0 = seed_low.to(tl.int64) & _WORD
    k1 = seed_high.to(tl.int64) & _WORD
    c0 = position.to(tl.int64) & _WORD
    c1 = c0 * 0
    c2 = c1
    c3 = c1
    for _ in tl.static_range(10):
        first = c0.to(tl.uint64) * _MULTIPLIER_0
        second = c2.to(tl.uint64) * _MULTIPLIER_1
        c0 = (second >> 32).to(tl.int64) ^ c1 ^ k0
        c1 = (second & _WORD).to(tl.int64)
        c2 = (first >> 32).to(tl.int64) ^ c3 ^ k1
        c3 = (first & _WORD).to(tl.int64)
        k0 = (k0 + _STEP_0) & _WORD
        k1 = (k1 + _STEP_1) & _WORD
    bits = ((c0.to(tl.uint64) << 32) | c1.to(tl.uint64)) >> 11
    return bits.to(tl.int64).to(tl.float64) * _UNIT
