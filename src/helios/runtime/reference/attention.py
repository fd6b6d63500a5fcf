"""Reference attention over the paged key-value cache: `rope_and_cache` and `attention`, their forms
over planes of bf16 pairs, and those of CUDA targets.

The attention is a plain masked softmax over a slot's gathered history; the catalogue's page-wise
online softmax gives the same numbers up to rounding.
"""

from __future__ import annotations

from typing import NamedTuple

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
    turned = _turned_heads(
        rows, qkv, positions, inverse_frequency, q_norm, k_norm, capacity, q_heads, kv_heads,
        head_dim, epsilon, attention_factor,
    )  # fmt: skip
    _put_back(rows, qkv, turned, capacity, q_heads, kv_heads, head_dim)
    page, offset = _cache_places(
        positions[turned.rows], slot[turned.rows], page_table, page_tokens, table_pages
    )
    k_pages = k_plane.reshape(-1, kv_heads, head_dim, page_tokens)
    v_pages = v_plane.reshape(-1, kv_heads, page_tokens, head_dim)
    stored = (page >= 0) & (page < len(k_pages))
    k_pages[page[stored], :, :, offset[stored]] = turned.keys[stored]
    v_pages[page[stored], :, offset[stored], :] = turned.values[stored]


def rope_and_cache_bf16(
    rows: I32, qkv: F32, positions: I32, slot: I32, page_table: I32, inverse_frequency: F32,
    q_norm: F32 | None, k_norm: F32 | None, k_plane: F32, v_plane: F32,
    *, capacity: int, q_heads: int, kv_heads: int, head_dim: int, page_tokens: int,
    table_pages: int, epsilon: float, attention_factor: float,
) -> None:  # fmt: skip
    """`rope_and_cache` into planes of pairs."""
    turned = _turned_heads(
        rows, qkv, positions, inverse_frequency, q_norm, k_norm, capacity, q_heads, kv_heads,
        head_dim, epsilon, attention_factor,
    )  # fmt: skip
    _put_back(rows, qkv, turned, capacity, q_heads, kv_heads, head_dim)
    page, offset = _cache_places(
        positions[turned.rows], slot[turned.rows], page_table, page_tokens, table_pages
    )
    k_pages = k_plane.reshape(-1, kv_heads, head_dim // 2, page_tokens, 2)
    v_pages = v_plane.reshape(-1, kv_heads, page_tokens // 2, head_dim, 2)
    there = (page >= 0) & (page < len(k_pages))
    page, offset = page[there], offset[there]
    pairs = turned.keys[there].reshape(len(page), kv_heads, head_dim // 2, 2)
    k_pages[page, :, :, offset] = pairs
    v_pages[page, :, offset // 2, :, offset % 2] = turned.values[there]


def rope_and_cache_f16(
    rows: I32, qkv: F32, positions: I32, slot: I32, page_table: I32, inverse_frequency: F32,
    q_norm: F32 | None, k_norm: F32 | None, queries: F32, k_plane: F32, v_plane: F32,
    *, capacity: int, q_heads: int, kv_heads: int, head_dim: int, page_tokens: int,
    table_pages: int, epsilon: float, attention_factor: float,
) -> None:  # fmt: skip
    """As `rope_and_cache`; rotated queries go to `queries`, `qkv` stays, both planes are
    [pages, kv_heads, page_tokens, head_dim]."""
    turned = _turned_heads(
        rows, qkv, positions, inverse_frequency, q_norm, k_norm, capacity, q_heads, kv_heads,
        head_dim, epsilon, attention_factor,
    )  # fmt: skip
    live = live_rows(rows, capacity)
    out = rows_of(queries, live, q_heads * head_dim).reshape(live, q_heads, head_dim)
    out[turned.rows] = turned.queries
    page, offset = _cache_places(
        positions[turned.rows], slot[turned.rows], page_table, page_tokens, table_pages
    )
    for plane, heads in ((k_plane, turned.keys), (v_plane, turned.values)):
        pages = plane.reshape(-1, kv_heads, page_tokens, head_dim)
        stored = (page >= 0) & (page < len(pages))
        pages[page[stored], :, offset[stored], :] = heads[stored]


def _put_back(
    rows: I32, qkv: F32, turned: _TurnedHeads, capacity: int, q_heads: int, kv_heads: int,
    head_dim: int,
) -> None:  # fmt: skip
    """Turned queries and keys in place of those that they were made of."""
    live = live_rows(rows, capacity)
    split = rows_of(qkv, live, (q_heads + 2 * kv_heads) * head_dim)
    split = split.reshape(live, q_heads + 2 * kv_heads, head_dim)
    split[turned.rows, :q_heads] = turned.queries
    split[turned.rows, q_heads : q_heads + kv_heads] = turned.keys


class _TurnedHeads(NamedTuple):
    """Heads of the rows that aren't inert, queries and keys normed and rotated."""

    rows: NDArray[np.intp]
    queries: F32
    keys: F32
    values: F32


def _turned_heads(
    rows: I32, qkv: F32, positions: I32, inverse_frequency: F32, q_norm: F32 | None,
    k_norm: F32 | None, capacity: int, q_heads: int, kv_heads: int, head_dim: int, epsilon: float,
    attention_factor: float,
) -> _TurnedHeads:  # fmt: skip
    live = live_rows(rows, capacity)
    active = np.flatnonzero(positions[:live] >= 0)
    heads = q_heads + 2 * kv_heads
    split = rows_of(qkv, live, heads * head_dim).reshape(live, heads, head_dim)
    queries, keys, values = np.split(split[active], [q_heads, q_heads + kv_heads], axis=1)
    if q_norm is not None:
        queries = normalised(queries, q_norm[:head_dim], epsilon)
    if k_norm is not None:
        keys = normalised(keys, k_norm[:head_dim], epsilon)
    angle = positions[active, None].astype(np.float32) * inverse_frequency[: head_dim // 2]
    cosine = (np.cos(angle) * np.float32(attention_factor))[:, None]
    sine = (np.sin(angle) * np.float32(attention_factor))[:, None]
    return _TurnedHeads(
        active, _rotated(queries, cosine, sine), _rotated(keys, cosine, sine), values
    )


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
    _attend_all(
        queries, positions[:live], slot[:live], page_table, k_pages, v_pages, out,
        page_tokens, table_pages, window, scale,
    )  # fmt: skip


def attention_f16(
    rows: I32, queries: F32, positions: I32, slot: I32, lanes: I32 | None,
    query_length: I32 | None, page_table: I32, k_plane: F32, v_plane: F32, out: F32,
    *, capacity: int, lane_capacity: int, q_heads: int, kv_heads: int, head_dim: int,
    page_tokens: int, table_pages: int, window: int, format: int, scale: float,
) -> None:  # fmt: skip
    """As `attention`, of queries alone and planes [pages, kv_heads, page_tokens, head_dim]. Rows
    that no lane has are left as they are."""
    live = live_rows(rows, capacity)
    if lanes is not None and query_length is not None:
        lengths = np.maximum(query_length[: live_rows(lanes, lane_capacity)], 0)
        live = min(live, int(lengths.sum()))
    k_pages, v_pages = (
        plane.reshape(-1, kv_heads, page_tokens, head_dim) for plane in (k_plane, v_plane)
    )
    _attend_all(
        rows_of(queries, live, q_heads * head_dim).reshape(live, q_heads, head_dim),
        positions[:live], slot[:live], page_table, k_pages.swapaxes(2, 3), v_pages, out,
        page_tokens, table_pages, window, scale,
    )  # fmt: skip


def _attend_all(
    queries: F32, positions: I32, slot: I32, page_table: I32, k_pages: F32, v_pages: F32,
    out: F32, page_tokens: int, table_pages: int, window: int, scale: float,
) -> None:  # fmt: skip
    """Slot by slot; `k_pages [pages, Hkv, D, PT]`, `v_pages [pages, Hkv, PT, D]`."""
    live, q_heads, head_dim = queries.shape
    kv_heads = k_pages.shape[1]
    result = rows_of(out, live, q_heads * head_dim).reshape(live, q_heads, head_dim)
    result[:] = 0
    tables = page_table[: len(page_table) // table_pages * table_pages].reshape(-1, table_pages)
    active = np.where(positions >= 0, slot, -1)
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
