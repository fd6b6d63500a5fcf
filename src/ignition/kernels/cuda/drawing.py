"""Draws from a row of logits: temperature, top_k, top_p, min_p, and a random number.

One program walks the row. Weights are integers (`logit_rows`), so that their sums, and with them
what a random number picks, don't depend on the order of the walk.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ignition.kernels.cuda.logit_rows import LOG2_E, mass_of, weight_of
from ignition.kernels.cuda.row_order import find_bound, last_id, measure, takes


@triton.jit
def draw(
    values, vocab, largest, best, temperature, top_k, top_p, min_p, uniform, listed,
    BLOCK: tl.constexpr, LIST: tl.constexpr,
):  # fmt: skip
    """The token that `uniform`, f64 in [0, 1), picks of what top_k, top_p and min_p keep; `best`
    where the weights aren't numbers or min_p keeps nothing. No logit is NaN; `largest` is the
    largest of them, `best` its token."""
    token = best
    rate = LOG2_E / temperature
    numbers = (rate > 0.0) & (rate < float("inf"))
    if numbers & (tl.abs(largest / temperature) < float("inf")):
        bound = tl.full((), float("-inf"), tl.float32)
        last = vocab * 1
        counted = vocab * 1  # tokens from `bound` on
        total = vocab.to(tl.int64) * 0
        limited = (top_k > 0) & (top_k < vocab)
        nucleus = top_p < 1.0
        if limited:
            bound, above, mass, ties = find_bound(
                values, vocab, bound, counted, largest, top_k, rate, listed, BLOCK, LIST, False,
                True,
            )  # fmt: skip
            last = last_id(values, vocab, bound, top_k - above, ties, BLOCK)
            counted = above + ties
            weight = mass_of(weight_of(bound, largest, rate))
            total = mass + (top_k - above).to(tl.int64) * weight
        elif nucleus:
            _, total = measure(values, vocab, bound, largest, rate, BLOCK, True)
        if nucleus:
            needed = _share(top_p, total)
            bound, above, mass, ties = find_bound(
                values, vocab, bound, counted, largest, needed, rate, listed, BLOCK, LIST, True,
                True,
            )  # fmt: skip
            weight = mass_of(weight_of(bound, largest, rate))
            wanted = (needed - mass + weight - 1) // tl.maximum(weight, 1)
            last = last_id(values, vocab, bound, wanted.to(tl.int32), ties, BLOCK)
            total = mass + wanted * weight
        if (weight_of(bound, largest, rate) < min_p) | ((not limited) & (not nucleus)):
            total = _kept_mass(values, vocab, bound, last, largest, rate, min_p, BLOCK)
        if total > 0:
            # The product may be rounded up to the total.
            target = (uniform * total.to(tl.float64)).to(tl.int64)
            target = tl.minimum(target, total - 1)
            token = _pick(values, vocab, bound, last, largest, rate, min_p, target, BLOCK)
    return token


@triton.jit
def _share(top_p, total):
    """The least whole mass that is at least `top_p` of the total, and more than none of it."""
    reached = top_p.to(tl.float64) * total.to(tl.float64)
    whole = reached.to(tl.int64)
    whole += (whole.to(tl.float64) < reached).to(tl.int64)
    return tl.minimum(tl.maximum(whole, 1), total)


@triton.jit
def _kept(values, ids, vocab, bound, last, largest, rate, min_p):
    """What tokens weigh, as far as they are kept."""
    logits = tl.load(values + ids, mask=ids < vocab, other=float("nan"))
    weights = weight_of(logits, largest, rate)
    kept = takes(logits, ids, bound, last) & (weights >= min_p)
    return tl.where(kept, mass_of(weights), 0)


@triton.jit
def _kept_mass(values, vocab, bound, last, largest, rate, min_p, BLOCK: tl.constexpr):
    mass = tl.zeros((BLOCK,), tl.int64)
    for first in range(0, vocab, BLOCK):
        ids = first + tl.arange(0, BLOCK)
        mass += _kept(values, ids, vocab, bound, last, largest, rate, min_p)
    return tl.sum(mass, 0)


@triton.jit
def _pick(
    values, vocab, bound, last, largest, rate, min_p, target, BLOCK: tl.constexpr
):  # fmt: skip
    """The first kept token, in id order, up to which more than `target` is kept."""
    token = vocab * 0
    before = target * 0
    for first in range(0, vocab, BLOCK):
        if before <= target:
            ids = first + tl.arange(0, BLOCK)
            masses = _kept(values, ids, vocab, bound, last, largest, rate, min_p)
            mass = tl.sum(masses, 0)
            if before + mass > target:
                passed = before + tl.cumsum(masses, 0) <= target
                token = first + tl.sum(passed.to(tl.int32), 0)
            before += mass
    return token
