"""Rotary embedding and paged attention against float64 formulas over an unpaged history."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from helios.runtime.reference.attention import attention, rope_and_cache

Q_HEADS, KV_HEADS, HEAD_DIM = 4, 2, 6
HEADS = Q_HEADS + 2 * KV_HEADS
PAGE_TOKENS, TABLE_PAGES, PAGES, SLOTS = 4, 5, 16, 3
FREQUENCY = (1 / 100 ** (np.arange(HEAD_DIM // 2) / (HEAD_DIM // 2))).astype(np.float32)
GEOMETRY = {
    "q_heads": Q_HEADS,
    "kv_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "page_tokens": PAGE_TOKENS,
    "table_pages": TABLE_PAGES,
}


@dataclass
class Cache:
    """Two planes with shuffled pages: a slot's history is spread over the whole plane."""

    table: np.ndarray
    k: np.ndarray
    v: np.ndarray


@pytest.fixture
def cache() -> Cache:
    order = np.random.default_rng(3).permutation(PAGES)[: SLOTS * TABLE_PAGES]
    size = PAGES * KV_HEADS * HEAD_DIM * PAGE_TOKENS
    return Cache(order.astype(np.int32), np.zeros(size, np.float32), np.zeros(size, np.float32))


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def random_rows(count: int, seed: int = 0) -> np.ndarray:
    shape = (count, HEADS, HEAD_DIM)
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def rope(
    cache: Cache, qkv: np.ndarray, positions: np.ndarray, slots: np.ndarray,
    q_norm: np.ndarray | None = None, k_norm: np.ndarray | None = None, factor: float = 1.0,
) -> np.ndarray:  # fmt: skip
    """Runs the kernel on a copy of `qkv` and returns the copy."""
    flat = qkv.copy().reshape(-1)
    rope_and_cache(
        i32(len(qkv)), flat, positions, slots, cache.table, FREQUENCY, q_norm, k_norm,
        cache.k, cache.v, capacity=len(qkv), epsilon=1e-6, attention_factor=factor, **GEOMETRY,
    )  # fmt: skip
    return flat.reshape(qkv.shape)


def attend(
    cache: Cache, qkv: np.ndarray, positions: np.ndarray, slots: np.ndarray, window: int = 0
) -> np.ndarray:
    out = np.full(len(qkv) * Q_HEADS * HEAD_DIM, 9, np.float32)
    attention(
        i32(len(qkv)), qkv.reshape(-1), positions, slots, cache.table, cache.k, cache.v, out,
        capacity=len(qkv), window=window, format=2, scale=0.37, **GEOMETRY,
    )  # fmt: skip
    return out.reshape(len(qkv), Q_HEADS, HEAD_DIM)


def rotated(head: np.ndarray, position: int, factor: float = 1.0) -> np.ndarray:
    """A head as complex numbers (first half + i second half), turned by the angle."""
    half = HEAD_DIM // 2
    turned = (head[:half] + 1j * head[half:]) * factor
    turned = turned * np.exp(1j * position * FREQUENCY.astype(np.float64))
    return np.concatenate([turned.real, turned.imag])


def cached(cache: Cache, slot: int, position: int) -> tuple[np.ndarray, np.ndarray]:
    """Key and value [Hkv, D] of a position, by the layout of docs/kernels.md."""
    page = cache.table[slot * TABLE_PAGES + position // PAGE_TOKENS]
    k = cache.k.reshape(PAGES, KV_HEADS, HEAD_DIM, PAGE_TOKENS)[page, :, :, position % PAGE_TOKENS]
    v = cache.v.reshape(PAGES, KV_HEADS, PAGE_TOKENS, HEAD_DIM)[page, :, position % PAGE_TOKENS]
    return k, v


@pytest.mark.parametrize("factor", [1.0, 1.25])
def test_rope_rotates_queries_and_stores_keys_and_values(cache: Cache, factor: float) -> None:
    qkv = random_rows(3)
    positions, slots = i32(0, 7, 19), i32(0, 2, 1)
    result = rope(cache, qkv, positions, slots, factor=factor)
    for r, (position, slot) in enumerate(zip(positions, slots, strict=True)):
        for h in range(Q_HEADS):
            expected = rotated(qkv[r, h].astype(np.float64), position, factor)
            np.testing.assert_allclose(result[r, h], expected, atol=1e-5)
        k, v = cached(cache, slot, position)
        for h in range(KV_HEADS):
            expected = rotated(qkv[r, Q_HEADS + h].astype(np.float64), position, factor)
            np.testing.assert_allclose(k[h], expected, atol=1e-5)
            np.testing.assert_allclose(result[r, Q_HEADS + h], expected, atol=1e-5)
            np.testing.assert_array_equal(v[h], qkv[r, Q_HEADS + KV_HEADS + h])


def test_head_norms_come_before_the_rotation(cache: Cache) -> None:
    qkv = random_rows(1, seed=8)
    q_norm, k_norm = np.random.default_rng(9).standard_normal((2, HEAD_DIM)).astype(np.float32)
    result = rope(cache, qkv, i32(5), i32(1), q_norm, k_norm)

    def norm(head: np.ndarray, weight: np.ndarray) -> np.ndarray:
        wide = head.astype(np.float64)
        return wide / math.sqrt((wide**2).mean() + 1e-6) * weight

    for h in range(Q_HEADS):
        np.testing.assert_allclose(result[0, h], rotated(norm(qkv[0, h], q_norm), 5), atol=1e-5)
    k, _ = cached(cache, 1, 5)
    for h in range(KV_HEADS):
        expected = rotated(norm(qkv[0, Q_HEADS + h], k_norm), 5)
        np.testing.assert_allclose(k[h], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("position", "slot", "page"),
    [(-1, 0, None), (PAGE_TOKENS * TABLE_PAGES, 0, None), (0, SLOTS, None), (0, -1, None),
     (0, 0, PAGES), (0, 0, -1)],
)  # fmt: skip
def test_a_row_without_a_place_writes_no_cache(
    cache: Cache, position: int, slot: int, page: int | None
) -> None:
    if page is not None:
        cache.table[0] = page
    qkv = random_rows(1)
    result = rope(cache, qkv, i32(position), i32(slot))
    assert not cache.k.any()
    assert not cache.v.any()
    if position == -1:
        np.testing.assert_array_equal(result, qkv)


@pytest.mark.parametrize("window", [0, 1, 3, 100])
def test_attention_is_a_softmax_over_the_slots_history(cache: Cache, window: int) -> None:
    lengths = [11, 1, 17]
    for slot, length in enumerate(lengths):
        history = random_rows(length, seed=20 + slot)
        rope(cache, history, np.arange(length, dtype=np.int32), np.full(length, slot, np.int32))
    # Packed rows of two chunks and a lane of one token, not grouped by slot on purpose.
    positions, slots = i32(8, 0, 9, 16, 10), i32(0, 1, 0, 2, 0)
    qkv = random_rows(len(positions), seed=30)
    out = attend(cache, qkv, positions, slots, window)
    for r, (position, slot) in enumerate(zip(positions, slots, strict=True)):
        first = max(0, position - window + 1) if window else 0
        seen = [cached(cache, slot, p) for p in range(first, position + 1)]
        for h in range(Q_HEADS):
            group = h // (Q_HEADS // KV_HEADS)
            query = qkv[r, h].astype(np.float64)
            weights = [math.exp(0.37 * float(query @ k[group])) for k, _ in seen]
            total = sum(weights)
            expected = sum(w * v[group] for w, (_, v) in zip(weights, seen, strict=True)) / total
            np.testing.assert_allclose(out[r, h], expected, atol=1e-5)


def test_inert_rows_attend_to_nothing(cache: Cache) -> None:
    cache.v[:] = 1
    out = attend(cache, random_rows(2), i32(-1, 0), i32(0, 0))
    assert not out[0].any()
    np.testing.assert_allclose(out[1], 1)


def test_a_page_out_of_range_reads_as_zero(cache: Cache) -> None:
    cache.v[:] = 1
    cache.table[0] = PAGES
    # Four zero keys and values of the missing page, then one present key equal to zero.
    out = attend(cache, random_rows(1), i32(PAGE_TOKENS), i32(0))
    np.testing.assert_allclose(out, 1 / (PAGE_TOKENS + 1), rtol=1e-6)


def test_other_histories_leave_no_trace(cache: Cache) -> None:
    rope(cache, random_rows(6), np.arange(6, dtype=np.int32), np.zeros(6, np.int32))
    query = random_rows(1, seed=4)
    alone = attend(cache, query, i32(5), i32(0))
    for plane in (cache.k, cache.v):
        pages = plane.reshape(PAGES, -1)
        others = np.setdiff1d(np.arange(PAGES), cache.table[:2])
        pages[others] = np.nan
    np.testing.assert_array_equal(attend(cache, query, i32(5), i32(0)), alone)
