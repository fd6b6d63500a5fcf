"""The arithmetic of attention: keys page by page, splits one after the other, for a tile of rows.

What decode and prefill share, so that a row gets the same bits from both; `attention` says in
which order it is called. A row's state is its maximum score (times log2(e)), the sum of its
weights and its weighted values, all f32.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def block_page(table, key, end, PAGE: tl.constexpr):
    """The page whose first token is `key`; 0 where that is at or past `end`."""
    return tl.load(table + key // PAGE, mask=key < end, other=0)


@triton.jit
def fold_block(
    q, keys, values, page, key, oldest, end, position, head, maximum, total, mixed, scale_log2,
    KV_HEADS: tl.constexpr, PAGE: tl.constexpr, WINDOW: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """One page of keys, from `key` on, folded into each row's maximum, sum and weighted values.

    Rows see keys up to `position`; all of them where not `MASKED`, which changes no bits. Values
    before `oldest` and from `end` on are of no interest to any row.
    """
    cell = (page * KV_HEADS + head) * PAGE
    scores = tl.dot(q, keys.load([cell, 0]).T)
    return _folded(
        q, scores, values.load([cell, 0]), key, oldest, end, position, maximum, total, mixed,
        scale_log2, PAGE, WINDOW, MASKED,
    )  # fmt: skip


@triton.jit
def fold_loaded_block(
    q, keys, values, key, oldest, end, position, maximum, total, mixed, scale_log2,
    PAGE: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """As `fold_block` with `MASKED`, of keys and values [PAGE, D] that are here already."""
    return _folded(
        q, tl.dot(q, keys.T), values, key, oldest, end, position, maximum, total, mixed, scale_log2,
        PAGE, WINDOW, True,
    )  # fmt: skip


@triton.jit
def _folded(
    q, scores, value, key, oldest, end, position, maximum, total, mixed, scale_log2,
    PAGE: tl.constexpr, WINDOW: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Scores and values of a page, folded in."""
    if MASKED:
        at = key + tl.arange(0, PAGE)
        scores = _visible(scores, at, position, WINDOW)
        # A weight of 0 wouldn't take a NaN away.
        value = tl.where(((at >= oldest) & (at < end))[:, None], value, 0.0)
    new_maximum = tl.maximum(maximum, tl.max(scores, 1) * scale_log2)
    # A row that has seen nothing yet has no maximum to subtract.
    shift = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)
    decay = tl.exp2(maximum - shift)
    scale = tl.full(scores.shape, scale_log2, tl.float32)
    weights = tl.exp2(tl.fma(scores, scale, -shift[:, None]))
    mixed = tl.dot(weights.to(q.dtype), value, mixed * decay[:, None])
    return new_maximum, total * decay + tl.sum(weights, 1), mixed


@triton.jit
def _visible(scores, at, position, WINDOW: tl.constexpr):
    """Scores of the keys that a row sees, minus infinity elsewhere."""
    seen = at[None, :] <= position[:, None]
    if WINDOW > 0:
        seen &= at[None, :] > position[:, None] - WINDOW
    return tl.where(seen, scores, float("-inf"))


@triton.jit
def empty(ROWS: tl.constexpr, D: tl.constexpr):
    """Maximum, sum and weighted values of nothing."""
    maximum = tl.full((ROWS,), float("-inf"), tl.float32)
    return maximum, tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS, D), tl.float32)


@triton.jit
def fold(maximum, total, mixed, split_maximum, split_total, split_mixed):
    """A split's result folded into those of the splits before it."""
    new_maximum = tl.maximum(maximum, split_maximum)
    shift = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)
    old = tl.exp2(maximum - shift)
    new = tl.exp2(split_maximum - shift)
    total = total * old + split_total * new
    mixed = mixed * old[:, None] + split_mixed * new[:, None]
    return new_maximum, total, mixed


@triton.jit
def normalised(total, mixed):
    """Weighted values over the sum of weights; zeros for a row that saw nothing.

    Folding nothing into -0.0 gives 0.0, so that is what every zero becomes.
    """
    return tl.where(total[:, None] > 0, mixed / total[:, None] + 0.0, 0.0)
