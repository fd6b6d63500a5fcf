"""Reference attention over the paged key-value cache: `rope_and_cache` and `attention`, and their
forms over planes of bf16 pairs.

The attention is a plain masked softmax over a slot's gathered history; the catalogue's page-wise
online softmax gives the same numbers up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from helios.runtime.reference.arrays import (
    F32,
    I32,
    gather,
    live_rows,
    rows_of,
)
from helios.runtime.reference.normalisation import normalised


def rope_and_cache(
    rows: I32, qkv: F32, positions: I32, slot: I32, page_table: I32, inverse_frequency: F32,
    q_norm: F32 | None, k_norm: F32 | None, k_plane: F32, v_plane: F32,
    *, capacity: int, q_heads: int, kv_heads: int, head_dim: int, page_tokens: int,
    table_pages: int, epsilon: float, attention_factor: float,
) -> None:  # fmt: skip
    """Norms and rotates queries and keys in place, and stores keys and values in the cache. Inert
    rows (position −1) stay as they are."""
    stored = _normed_and_rotated(
        rows, qkv, positions, inverse_frequency, q_norm, k_norm, capacity=capacity,
        q_heads=q_heads, kv_heads=kv_heads, head_dim=head_dim, epsilon=epsilon,
        attention_factor=attention_factor,
    )  # fmt: skip
    page, offset = _cache_places(
        positions[stored.rows], slot[stored.rows], page_table, page_tokens, table_pages
    )
    k_pages = k_plane.reshape(-1, kv_heads, head_dim, page_tokens)
    v_pages = v_plane.reshape(-1, kv_heads, page_tokens, head_dim)
    there = (page >= 0) & (page < len(k_pages))
    k_pages[page[there], :, :, offset[there]] = stored.keys[there]
    v_pages[page[there], :, offset[there], :] = stored.values[there]


def rope_and_cache_bf16(
    rows: I32, qkv: F32, positions: I32, slot: I32, page_table: I32, inverse_frequency: F32,
    q_norm: F32 | None, k_norm: F32 | None, k_plane: F32, v_plane: F32,
    *, capacity: int, q_heads: int, kv_heads: int, head_dim: int, page_tokens: int,
    table_pages: int, epsilon: float, attention_factor: float,
) -> None:  # fmt: skip
    """`rope_and_cache` into planes of pairs."""
    stored = _normed_and_rotated(
        rows, qkv, positions, inverse_frequency, q_norm, k_norm, capacity=capacity,
        q_heads=q_heads, kv_heads=kv_heads, head_dim=head_dim, epsilon=epsilon,
        attention_factor=attention_factor,
    )  # fmt: skip
    page, offset = _cache_places(
        positions[stored.rows], slot[stored.rows], page_table, page_tokens, table_pages
    )
    k_pages = k_plane.reshape(-1, kv_heads, head_dim // 2, page_tokens, 2)
    v_pages = v_plane.reshape(-1, kv_heads, page_tokens // 2, head_dim, 2)
    there = (page >= 0) & (page < len(k_pages))
    page, offset = page[there], offset[there]
    pairs = stored.keys[there].reshape(len(page), kv_heads, head_dim // 2, 2)
    k_pages[page, :, :, offset] = pairs
    v_pages[page, :, offset // 2, :, offset % 2] = stored.values[there]


@dataclass(frozen=True)
class _Stored:
    """What active rows, given by their indices, bring to the cache: `[rows, Hkv, D]` each."""

    rows: NDArray[np.intp]
    keys: F32
    values: F32


def _normed_and_rotated(
    rows: I32, qkv: F32, positions: I32, inverse_frequency: F32, q_norm: F32 | None,
    k_norm: F32 | None, *, capacity: int, q_heads: int, kv_heads: int, head_dim: int,
    epsilon: float, attention_factor: float,
) -> _Stored:  # fmt: skip
    live = live_rows(rows, capacity)
    active = np.flatnonzero(positions[:live] >= 0)
    heads = q_heads + 2 * kv_heads
    split = rows_of(qkv, live, heads * head_dim).reshape(live, heads, head_dim)
    queries, keys, values = np.split(split[active], [q_heads, q_heads + kv_heads], axis=1)
    if q_norm is not None:
        queries = normalised(queries, q_norm[:head_dim], epsilon)
    if k_norm is not None:
        keys = normalised(keys, k_norm[:head_dim], epsilon)
    position = positions[active]
    angle = position[:, None].astype(np.float32) * inverse_frequency[: head_dim // 2]
    cosine = (np.cos(angle) * np.float32(attention_factor))[:, None]
    sine = (np.sin(angle) * np.float32(attention_factor))[:, None]
    split[active, :q_heads] = _rotated(queries, cosine, sine)
    keys = _rotated(keys, cosine, sine)
    split[active, q_heads : q_heads + kv_heads] = keys
    return _Stored(active, keys, values)


def _rotated(heads: F32, cosine: F32, sine: F32) -> F32:
    """Rotates the two halves of each head, `heads [R, heads, D]`, angles `[R, 1, D/2]`."""
    first, second = np.split(heads, 2, axis=-1)
    return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


def _cache_places(
    position: I32, slot: I32, page_table: I32, page_tokens: int, table_pages: int
) -> tuple[I32, I32]:
    """Page id and index within the page of each row; page −1 where a row has no place."""
    tables = page_table[: len(page_table) // table_pages * table_pages].reshape(-1, table_pages)
    column = position // page_tokens
    valid = (position >= 0) & (column < table_pages) & (slot >= 0) & (slot < len(tables))
    page = tables[np.where(valid, slot, 0), np.where(valid, column, 0)]
    return np.where(valid, page, -1), position % page_tokens


def attention(
    rows: I32, qkv: F32, positions: I32, slot: I32, page_table: I32, k_plane: F32, v_plane: F32,
    out: F32,
    *, capacity: int, q_heads: int, kv_heads: int, head_dim: int, page_tokens: int,
    table_pages: int, window: int, format: int, scale: float,
) -> None:  # fmt: skip
    """Softmax attention of each row's queries over its slot's history up to its position."""
    _attend_rows(
        rows, qkv, positions, slot, page_table,
        k_plane.reshape(-1, kv_heads, head_dim, page_tokens),
        v_plane.reshape(-1, kv_heads, page_tokens, head_dim),
        out, capacity=capacity, q_heads=q_heads, table_pages=table_pages,
        window=window, scale=scale,
    )  # fmt: skip


def attention_bf16(
    rows: I32, qkv: F32, positions: I32, slot: I32, page_table: I32, k_plane: F32, v_plane: F32,
    out: F32,
    *, capacity: int, q_heads: int, kv_heads: int, head_dim: int, page_tokens: int,
    table_pages: int, window: int, format: int, scale: float,
) -> None:  # fmt: skip
    """`attention` over planes of pairs, with bf16 products."""
    keys = k_plane.reshape(-1, kv_heads, head_dim // 2, page_tokens, 2).swapaxes(3, 4)
    values = v_plane.reshape(-1, kv_heads, page_tokens // 2, head_dim, 2).swapaxes(3, 4)
    _attend_rows(
        rows, qkv, positions, slot, page_table,
        keys.reshape(-1, kv_heads, head_dim, page_tokens),
        values.reshape(-1, kv_heads, page_tokens, head_dim),
        out, capacity=capacity, q_heads=q_heads, table_pages=table_pages,
        window=window, scale=scale,
    )  # fmt: skip


def _attend_rows(
    rows: I32, qkv: F32, positions: I32, slot: I32, page_table: I32, k_pages: F32, v_pages: F32,
    out: F32,
    *, capacity: int, q_heads: int, table_pages: int, window: int, scale: float,
) -> None:  # fmt: skip
    """`k_pages [pages, Hkv, D, page tokens]`, `v_pages [pages, Hkv, page tokens, D]`."""
    _, kv_heads, head_dim, page_tokens = k_pages.shape
    live = live_rows(rows, capacity)
    heads = q_heads + 2 * kv_heads
    queries = rows_of(qkv, live, heads * head_dim).reshape(live, heads, head_dim)[:, :q_heads]
    result = rows_of(out, live, q_heads * head_dim).reshape(live, q_heads, head_dim)
    result[:] = 0
    tables = page_table[: len(page_table) // table_pages * table_pages].reshape(-1, table_pages)
    active = np.where(positions[:live] >= 0, slot[:live], -1)
    for one in np.unique(active[active >= 0]):
        mine = np.flatnonzero(active == one)
        position = positions[mine]
        pages = gather(tables, np.array([one]))[0, : position.max() // page_tokens + 1]
        # Page ids out of range read as zero keys and values, as everywhere.
        k = gather(k_pages, pages).transpose(1, 2, 0, 3).reshape(kv_heads, head_dim, -1)
        v = gather(v_pages, pages).transpose(1, 0, 2, 3).reshape(kv_heads, -1, head_dim)
        result[mine] = _attend(queries[mine], k, v, position, window, scale)


def _attend(queries: F32, k: F32, v: F32, position: I32, window: int, scale: float) -> F32:
    """`queries [R, Hq, D]`, `k [Hkv, D, S]`, `v [Hkv, S, D]` → `[R, Hq, D]`."""
    count, q_heads, head_dim = queries.shape
    kv_heads, _, span = k.shape
    keys = np.arange(span)
    seen = keys <= position[:, None]
    if window > 0:
        seen &= keys > position[:, None] - window
    grouped = queries.reshape(count, kv_heads, -1, head_dim).transpose(1, 2, 0, 3)
    scores = grouped @ k[:, None] * np.float32(scale)
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed = weights @ v[:, None] / weights.sum(axis=-1, keepdims=True)
    return np.ascontiguousarray(mixed.transpose(2, 0, 1, 3)).reshape(count, q_heads, head_dim)
