"""Rotation and attention of CUDA targets: the numbers of the plain kernels in another layout."""

from __future__ import annotations

import numpy as np
import pytest

from helios.runtime.reference.attention import (
    attention,
    attention_f16,
    rope_and_cache,
    rope_and_cache_f16,
)

Q_HEADS, KV_HEADS, HEAD_DIM = 6, 2, 8
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
# A lane of three tokens, one of none, an inert one and one of two.
LENGTHS = np.array([3, 0, 1, 2], np.int32)
POSITIONS = np.array([5, 6, 7, -1, 18, 19, 0], np.int32)
ROW_SLOTS = np.array([1, 1, 1, 0, 2, 2, 0], np.int32)


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def random(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def table() -> np.ndarray:
    order = np.random.default_rng(3).permutation(PAGES)[: SLOTS * TABLE_PAGES]
    return order.astype(np.int32)


@pytest.mark.parametrize("norms", [False, True])
def test_rotated_queries_leave_the_row_as_it_is(table: np.ndarray, norms: bool) -> None:
    qkv = random(len(POSITIONS), HEADS, HEAD_DIM, seed=1)
    q_norm, k_norm = random(2, HEAD_DIM, seed=2) if norms else (None, None)
    size = PAGES * KV_HEADS * HEAD_DIM * PAGE_TOKENS
    before = np.full(size, 5, np.float32)
    table[2 * TABLE_PAGES + 4] = PAGES  # two of the rows have no page
    attributes = {"capacity": 7, "epsilon": 1e-5, "attention_factor": 1.25, **GEOMETRY}

    in_place, k, v = qkv.copy().reshape(-1), before.copy(), before.copy()
    rope_and_cache(
        i32(6), in_place, POSITIONS, ROW_SLOTS, table, FREQUENCY, q_norm, k_norm, k, v, **attributes
    )
    queries = np.full((7, Q_HEADS, HEAD_DIM), 9, np.float32)
    given, keys, values = qkv.copy().reshape(-1), before.copy(), before.copy()
    rope_and_cache_f16(
        i32(6), given, POSITIONS, ROW_SLOTS, table, FREQUENCY, q_norm, k_norm,
        queries.reshape(-1), keys, values, **attributes,
    )  # fmt: skip

    np.testing.assert_array_equal(given, qkv.reshape(-1))
    expected = in_place.reshape(qkv.shape)[:, :Q_HEADS]
    for row in (0, 1, 2, 4, 5):
        np.testing.assert_array_equal(queries[row], expected[row])
    for row in (3, 6):  # inert; past the live rows
        np.testing.assert_array_equal(queries[row], np.full((Q_HEADS, HEAD_DIM), 9))
    transposed = k.reshape(PAGES, KV_HEADS, HEAD_DIM, PAGE_TOKENS).swapaxes(2, 3)
    np.testing.assert_array_equal(keys.reshape(transposed.shape), transposed)
    np.testing.assert_array_equal(values, v)


@pytest.mark.parametrize("window", [0, 1, 6])
@pytest.mark.parametrize("by_lanes", [False, True])
def test_attention_of_queries_alone(table: np.ndarray, window: int, by_lanes: bool) -> None:
    qkv = random(7, HEADS, HEAD_DIM, seed=4)
    plane = (PAGES, KV_HEADS, PAGE_TOKENS, HEAD_DIM)
    keys, values = random(*plane, seed=5), random(*plane, seed=6)
    geometry = {"capacity": 7, "window": window, "format": 1, "scale": 0.4, **GEOMETRY}
    rows = 6 if by_lanes else 7
    expected = np.full(7 * Q_HEADS * HEAD_DIM, 9, np.float32)
    transposed = np.ascontiguousarray(keys.swapaxes(2, 3)).reshape(-1)
    attention(
        i32(rows), qkv.reshape(-1), POSITIONS, ROW_SLOTS, table, transposed, values.reshape(-1),
        expected, **geometry,
    )  # fmt: skip

    out = np.full_like(expected, 9)
    queries = np.ascontiguousarray(qkv[:, :Q_HEADS]).reshape(-1)
    lanes, lengths = (i32(4), LENGTHS) if by_lanes else (None, None)
    attention_f16(
        i32(7), queries, POSITIONS, ROW_SLOTS, lanes, lengths, table,
        keys.reshape(-1), values.reshape(-1), out,
        lane_capacity=len(LENGTHS) if by_lanes else 0, **geometry,
    )  # fmt: skip
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    assert not out.reshape(7, -1)[3].any()
    if by_lanes:  # no lane has the last row
        assert (out.reshape(7, -1)[6] == 9).all()
