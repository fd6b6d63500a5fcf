"""Queries and keys of a token: normalised, rotated, and stored with its values where attention
reads them.

The angle is the f32 product of position and inverse frequency, as models define it; its sine and
cosine are taken after a reduction by a quarter turn of two f32 numbers, so that they are as good at
position 131,071 as at 1.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ignition.kernels.cuda.rows import inverse_root, row_sum

F16_LIMIT: tl.constexpr = tl.constexpr(65504.0)


@triton.jit
def cosine_and_sine(angle):
    """Of f32 angles, as f32; absolute error below 1e-7 up to 2²⁰, 2e-7 up to 2²². Angles are
    converted to nothing wider, of which a multiprocessor does a fourth of what it does of anything
    else here."""
    # Past 1.5 · 2²³ a float's last bit is one, so the sum is rounded to whole quarter turns.
    shifted = tl.fma(angle, 0.63661975, 12582912.0)
    quarters = shifted - 12582912.0
    # A quarter turn less what the first number has of it; the first difference is exact.
    rest = tl.fma(-quarters, 1.5707964, angle)
    rest = tl.fma(-quarters, -4.371139e-08, rest)
    z = rest * rest
    # Polynomials in z, fitted to the least largest error on half a quarter turn.
    odd = tl.fma(z, tl.fma(z, -0.00019517, 0.00833218), -0.16666655)
    odd = tl.fma(rest * z, odd, rest)
    even = tl.fma(z, tl.fma(z, 2.4438446e-05, -0.00138874), 0.04166665)
    even = tl.fma(z * z, even, tl.fma(z, -0.5, 1.0))
    quarter = shifted.to(tl.int32, bitcast=True)
    swapped = (quarter & 1) == 1
    cosine = tl.where(swapped, odd, even)
    sine = tl.where(swapped, even, odd)
    cosine = tl.where((quarter + 1 & 2) == 2, -cosine, cosine)
    return cosine, tl.where((quarter & 2) == 2, -sine, sine)


@triton.jit
def rotated_heads(first, second, cosine, sine):
    """The two halves of heads [heads, D / 2], turned by their angles."""
    return first * cosine - second * sine, second * cosine + first * sine


@triton.jit
def joined_halves(first, second, HEADS: tl.constexpr, D: tl.constexpr):
    """Heads [HEADS, D] of their halves."""
    return tl.reshape(tl.permute(tl.join(first, second), (0, 2, 1)), (HEADS, D))


@triton.jit
def normalised_halves(first, second, weight, epsilon, HEADS: tl.constexpr, D: tl.constexpr):
    """Both halves of heads [HEADS, D / 2], normalised head by head."""
    column = tl.arange(0, D // 2)
    squares = row_sum(first * first + second * second, HEADS, D // 2)
    inverse = inverse_root(squares, D, epsilon)[:, None]
    first = first * inverse * tl.load(weight + column)[None, :]
    return first, second * inverse * tl.load(weight + D // 2 + column)[None, :]


@triton.jit
def as_f16(x):
    """Rounded to f16, clamped to what it holds."""
    return tl.minimum(tl.maximum(x, -F16_LIMIT), F16_LIMIT).to(tl.float16)


@triton.jit
def store_halves(
    to, first, second, mask, HEADS: tl.constexpr, D: tl.constexpr
):  # fmt: skip
    """Stores both halves as f16; `to` points at a head's first element."""
    column = tl.arange(0, D // 2)
    at = to[:, None] + column[None, :]
    mask = mask[:, None]
    tl.store(at, as_f16(first), mask=mask)
    tl.store(at + D // 2, as_f16(second), mask=mask)


@triton.jit
def rope_and_cache(
    rows, qkv, positions, slots, page_table, inverse_frequency, q_norm, k_norm, queries, keys,
    values, table_pages, slot_count, pages, epsilon, attention_factor, Q_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, HEADS: tl.constexpr,
    Q_NORM: tl.constexpr, K_NORM: tl.constexpr, SETTLED: tl.constexpr,
):  # fmt: skip
    """Grid (capacity, ⌈(Q_HEADS + 2 KV_HEADS) / HEADS⌉): some heads of a row a program.

    `SETTLED`: live rows, positions, slots and page table are older than the launch before this one.
    qkv f32 [capacity, Q_HEADS + 2 KV_HEADS, D]; queries f16 [capacity, Q_HEADS, D]; keys and
    values f16 [pages, KV_HEADS, PAGE, D].
    """
    HALF: tl.constexpr = D // 2
    ALL: tl.constexpr = Q_HEADS + 2 * KV_HEADS
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    column = tl.arange(0, HALF)
    frequency = tl.load(inverse_frequency + column)
    is_query = head < Q_HEADS
    is_key = (head >= Q_HEADS) & (head < Q_HEADS + KV_HEADS)
    is_value = (head >= Q_HEADS + KV_HEADS) & (head < ALL)
    first_factor = tl.full((HEADS, HALF), 1.0, tl.float32)
    second_factor = first_factor
    if Q_NORM:
        first_factor = tl.where(is_query[:, None], tl.load(q_norm + column)[None, :], first_factor)
        second_factor = tl.where(
            is_query[:, None], tl.load(q_norm + HALF + column)[None, :], second_factor
        )
    if K_NORM:
        first_factor = tl.where(is_key[:, None], tl.load(k_norm + column)[None, :], first_factor)
        second_factor = tl.where(
            is_key[:, None], tl.load(k_norm + HALF + column)[None, :], second_factor
        )
    if not SETTLED:
        gdc_wait()
    live = row < tl.load(rows)
    position = tl.load(positions + row)
    slot = tl.load(slots + row)
    active = live & (position >= 0)
    placed = active & (position < table_pages * PAGE) & (slot >= 0) & (slot < slot_count)
    entry = page_table + slot.to(tl.int64) * table_pages + position // PAGE
    page = tl.load(entry, mask=placed, other=-1)
    placed = (page >= 0) & (page < pages)
    cosine, sine = cosine_and_sine(position.to(tl.float32) * frequency)
    cosine = (cosine * attention_factor)[None, :]
    sine = (sine * attention_factor)[None, :]
    if SETTLED:
        gdc_wait()
    gdc_launch_dependents()
    # Read before it is known whether the row is live.
    at = qkv + row * (ALL * D) + head[:, None] * D + column[None, :]
    mask = (head < ALL)[:, None]
    first = tl.load(at, mask=mask, other=0.0)
    second = tl.load(at + HALF, mask=mask, other=0.0)
    if live:
        if Q_NORM | K_NORM:
            squares = row_sum(first * first + second * second, HEADS, HALF)
            inverse = inverse_root(squares, D, epsilon)
            normed = (is_query & Q_NORM) | (is_key & K_NORM)
            inverse = tl.where(normed, inverse, 1.0)[:, None]
            first = first * inverse * first_factor
            second = second * inverse * second_factor
        turned_first, turned_second = rotated_heads(first, second, cosine, sine)
        first = tl.where(is_value[:, None], first, turned_first)
        second = tl.where(is_value[:, None], second, turned_second)
        to = queries + (row * Q_HEADS + head) * D
        store_halves(to, first, second, is_query & active, HEADS, D)
        inside = position % PAGE
        cell = page.to(tl.int64) * KV_HEADS
        to = keys + ((cell + head - Q_HEADS) * PAGE + inside) * D
        store_halves(to, first, second, is_key & placed, HEADS, D)
        to = values + ((cell + head - Q_HEADS - KV_HEADS) * PAGE + inside) * D
        store_halves(to, first, second, is_value & placed, HEADS, D)
