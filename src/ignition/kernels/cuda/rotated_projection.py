"""Projections of many rows to queries, keys and values, rotated and stored where attention reads
them.

What `projection.project_many` and `rotary.rope_and_cache` do one after the other, with their bits,
but the sums are never written: a tile's columns are whole heads, and both halves of a head lie in
the same threads' registers. A tile's angles serve all of its heads.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ignition.kernels.cuda.projection import tile_sums
from ignition.kernels.cuda.rotary import (
    cosine_and_sine,
    normalised_halves,
    rotated_heads,
    store_halves,
)
from ignition.kernels.cuda.weighing import inverse_roots, read_squares


@triton.jit
def project_and_rotate(
    rows, x, w, bias, squares, positions, slots, page_table, inverse_frequency, q_norm, k_norm,
    queries, keys, values, table_pages, slot_count, pages, weighed_epsilon, epsilon,
    attention_factor, K: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr, FLATTEN: tl.constexpr, BIAS: tl.constexpr, BLOCKS: tl.constexpr,
    PADDED_BLOCKS: tl.constexpr, SETTLED: tl.constexpr, Q_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, Q_NORM: tl.constexpr,
    K_NORM: tl.constexpr,
):  # fmt: skip
    """Grid, tensor maps, blocks and weighed rows as `project_many`, rows first and in one part, BN
    a multiple of D; what is stored as `rope_and_cache`. `SETTLED`: `rows` is older than the launch
    before. `weighed_epsilon` is of the rows' norm, `epsilon` of heads'."""
    N: tl.constexpr = (Q_HEADS + 2 * KV_HEADS) * D
    if not SETTLED:
        gdc_wait()
    live = tl.load(rows)
    if SETTLED:
        gdc_wait()
    tiles_m = tl.cdiv(live, BM)
    per_group = GROUP * tl.cdiv(N, BN)
    tiles = tiles_m * tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
        group = tile // per_group
        inside = tile % per_group
        size = tl.minimum(tiles_m - group * GROUP, GROUP)
        first_row = (group * GROUP + inside % size) * BM
        first_output = inside // size * BN
        if BLOCKS > 0:
            row = first_row + tl.arange(0, BM)
            read = read_squares(squares, row, row < live, BLOCKS, PADDED_BLOCKS)
        sums = tile_sums(x, w, first_output, first_row, K, 1, BN, BM, BK, True)
        if BLOCKS > 0:
            sums *= inverse_roots(read, weighed_epsilon, K, BM, PADDED_BLOCKS)
        if BIAS:
            at = first_output + tl.arange(0, BN)
            sums += tl.load(bias + at, mask=at < N, other=0.0)[None, :]
        _store_rotated(
            sums, positions, slots, page_table, inverse_frequency, q_norm, k_norm, queries, keys,
            values, table_pages, slot_count, pages, epsilon, attention_factor, first_output,
            first_row, live, BN, BM, Q_HEADS, KV_HEADS, D, PAGE, Q_NORM, K_NORM,
        )  # fmt: skip
    gdc_launch_dependents()


@triton.jit
def _halves(sums, BM: tl.constexpr, WIDTH: tl.constexpr):
    """Left and right columns of sums [BM, WIDTH], as they lie in registers."""
    return tl.split(tl.permute(tl.reshape(sums, (BM, 2, WIDTH // 2)), (0, 2, 1)))


@triton.jit
def _store_rotated(
    sums, positions, slots, page_table, inverse_frequency, q_norm, k_norm, queries, keys, values,
    table_pages, slot_count, pages, epsilon, attention_factor, first_output, first_row, live,
    BN: tl.constexpr, BM: tl.constexpr, Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr,
    D: tl.constexpr, PAGE: tl.constexpr, Q_NORM: tl.constexpr, K_NORM: tl.constexpr,
):  # fmt: skip
    """What `rope_and_cache` does of a tile's heads. Without branches, after which the compiler
    would wait for each matrix product before the next."""
    row = first_row + tl.arange(0, BM)
    position = tl.load(positions + row, mask=row < live, other=-1)
    active = position >= 0
    head = first_output // D
    cached = active & (head + BN // D > Q_HEADS)
    slot = tl.load(slots + row, mask=cached, other=-1)
    placed = cached & (position < table_pages * PAGE) & (slot >= 0) & (slot < slot_count)
    entry = page_table + slot.to(tl.int64) * table_pages + position // PAGE
    page = tl.load(entry, mask=placed, other=-1)
    placed = (page >= 0) & (page < pages)
    cell = page.to(tl.int64) * (KV_HEADS * PAGE) + position % PAGE
    frequency = tl.load(inverse_frequency + tl.arange(0, D // 2))
    cosine, sine = cosine_and_sine(position.to(tl.float32)[:, None] * frequency[None, :])
    cosine *= attention_factor
    sine *= attention_factor
    first, second = _halves(sums, BM, BN)
    _store_heads(
        first, second, cosine, sine, row.to(tl.int64), active, cell, placed, head, q_norm, k_norm,
        queries, keys, values, epsilon, BN, BM, Q_HEADS, KV_HEADS, D, PAGE, Q_NORM, K_NORM,
    )  # fmt: skip


@triton.jit
def _store_heads(
    first, second, cosine, sine, row, active, cell, placed, head, q_norm, k_norm, queries, keys,
    values, epsilon, WIDTH: tl.constexpr, BM: tl.constexpr, Q_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, Q_NORM: tl.constexpr,
    K_NORM: tl.constexpr,
):  # fmt: skip
    """Stores the heads in sums of which `first` and `second` are the halves [BM, WIDTH / 2];
    `head` is the first one's number."""
    if WIDTH > D:
        left, middle = _halves(first, BM, WIDTH // 2)
        _store_heads(
            left, middle, cosine, sine, row, active, cell, placed, head, q_norm, k_norm, queries,
            keys, values, epsilon, WIDTH // 2, BM, Q_HEADS, KV_HEADS, D, PAGE, Q_NORM, K_NORM,
        )  # fmt: skip
        left, middle = _halves(second, BM, WIDTH // 2)
        _store_heads(
            left, middle, cosine, sine, row, active, cell, placed, head + WIDTH // 2 // D, q_norm,
            k_norm, queries, keys, values, epsilon, WIDTH // 2, BM, Q_HEADS, KV_HEADS, D, PAGE,
            Q_NORM, K_NORM,
        )  # fmt: skip
    else:
        is_query = head < Q_HEADS
        is_value = head >= Q_HEADS + KV_HEADS
        normed_first, normed_second = first, second
        if Q_NORM | K_NORM:
            weight = q_norm if Q_NORM else k_norm
            if Q_NORM & K_NORM:
                weight = tl.where(is_query, q_norm, k_norm)
            normed_first, normed_second = normalised_halves(first, second, weight, epsilon, BM, D)
            if not (Q_NORM & K_NORM):
                normed_first = tl.where(is_query == Q_NORM, normed_first, first)
                normed_second = tl.where(is_query == Q_NORM, normed_second, second)
        turned_first, turned_second = rotated_heads(normed_first, normed_second, cosine, sine)
        first = tl.where(is_value, first, turned_first)
        second = tl.where(is_value, second, turned_second)
        plane = tl.where(is_value, values, keys)
        of_plane = cell + (head - Q_HEADS - tl.where(is_value, KV_HEADS, 0)) * PAGE
        to = (
            tl.where(is_query, queries, plane)
            + tl.where(is_query, row * Q_HEADS + head, of_plane) * D
        )
        mask = tl.where(is_query, active, placed & (head < Q_HEADS + 2 * KV_HEADS))
        store_halves(to, first, second, mask, BM, D)
