"""A row of logits on the device: its largest, the sum of its exponentials, and the order of its
tokens. Functions that the kernels of `sampling` are made of.

A row is cut into chunks that depend on the vocabulary alone; each has a place in scratch, and
whoever ends last folds all of them in a tree of fixed shape. So a row's bits are its own, whatever
other rows there are. What is compared or added exactly needs no such care:

- Keys: i32 in the order of the logits; −0 has the key of 0, NaN the least of all.
- Weights: exp((logit − largest) / T) in [0, 1], as multiples of 2⁻⁴⁴ in i64. Sums of up to 2¹⁸ of
  them are exact, hence the same in any order.
- The best token: its key in the upper half of an i64, the complement of its id in the lower one.
"""

from __future__ import annotations

import triton
import triton.language as tl

INFINITY: tl.constexpr = tl.constexpr(float("inf"))
NAN_KEY: tl.constexpr = tl.constexpr(-(2**31))
EXCLUDED_KEY: tl.constexpr = tl.constexpr(-0x7F800001)  # of −∞
WEIGHT_ONE: tl.constexpr = tl.constexpr(2.0**44)
LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)
LAST_ID: tl.constexpr = tl.constexpr(2**31 - 1)


@triton.jit
def key_of(logit):
    """The logit's key."""
    bits = tl.where(logit == 0.0, 0.0, logit).to(tl.int32, bitcast=True)
    return tl.where(logit == logit, bits ^ ((bits >> 31) & 0x7FFFFFFF), NAN_KEY)


@triton.jit
def logit_of(key):
    """The logit of an i32 key that isn't NaN's."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def weight_of(logit, largest, rate):
    """2 ** ((logit − largest) · rate), which is 1 for the largest; 0 for NaN."""
    return tl.where(logit == logit, tl.exp2((logit - largest) * rate), 0.0)


@triton.jit
def mass_of(weight):
    """A weight in multiples of 2⁻⁴⁴."""
    return (weight * WEIGHT_ONE).to(tl.int64)


@triton.jit
def best_of(logits, ids):
    """The token that greedy sampling prefers: the greater of two such numbers is the better one.
    No logit is NaN."""
    largest = tl.max(logits, 0)
    first = tl.min(tl.where(logits == largest, ids, LAST_ID), 0)
    return (key_of(largest).to(tl.int64) << 32) + (first ^ LAST_ID).to(tl.int64)


@triton.jit
def best_logit(best):
    """The best token's logit."""
    return logit_of((best >> 32).to(tl.int32))


@triton.jit
def best_id(best):
    """The best token."""
    return (best & LAST_ID).to(tl.int32) ^ LAST_ID


@triton.jit
def scan_chunk(logits, ids, bests, sums, at):
    """Keeps a chunk's best token and the sum of exponentials over its largest logit."""
    best = best_of(tl.where(logits == logits, logits, -INFINITY), ids)
    largest = best_logit(best)
    # A chunk without a logit above −∞ adds nothing; exp(NaN) spoils the sum, as it should.
    base = tl.where(largest == -INFINITY, 0.0, largest)
    tl.store(bests + at, best)
    tl.store(sums + at, tl.sum(tl.exp(logits - base), 0))


@triton.jit
def fold_chunks(bests, sums, first, chunks, CHUNKS: tl.constexpr):
    """The row's best token, and the logarithm of its sum of exponentials over the largest logit,
    f64: NaN where a logit is NaN or +∞, or none is above −∞."""
    chunk = tl.arange(0, CHUNKS)
    live = chunk < chunks
    chunk_best = tl.load(bests + first + chunk, mask=live, other=-(2**63))
    chunk_sum = tl.load(sums + first + chunk, mask=live, other=0.0).to(tl.float64)
    best = tl.max(chunk_best, 0)
    largest = best_logit(best).to(tl.float64)
    below = tl.where(live, best_logit(chunk_best).to(tl.float64) - largest, 0.0)
    return best, tl.log(tl.sum(chunk_sum * tl.exp(below), 0))


@triton.jit
def logprob_of(logit, largest, log_sum):
    """f32, of an f32 logit, the largest one and the f64 logarithm that `fold_chunks` gives."""
    return (logit.to(tl.float64) - largest.to(tl.float64) - log_sum).to(tl.float32)


@triton.jit
def arrives_last(arrivals, count):
    """Counts the program in; true for the last of `count`, which zeroes the counter. What the
    others stored before is visible to it."""
    tl.debug_barrier()  # every thread's results are stored before the arrival is counted
    last = tl.atomic_add(arrivals, 1, sem="acq_rel") == count - 1
    if last:
        tl.store(arrivals, 0)
    return last
