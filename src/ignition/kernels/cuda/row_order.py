"""The first tokens of a row in the order (logit descending, id ascending), without sorting it.

How many, or how much weight, is asked for; the answer is a *cut*: the logit of the last token taken
and, among tokens with that logit, the last id taken. One program walks a row; `values` points to
its f32 logits. Counts and weights are integers, so a cut is exact whatever the order of the walk.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ignition.kernels.cuda.logit_rows import (
    NAN_KEY,
    best_logit,
    key_of,
    logit_of,
    logprob_of,
    mass_of,
    weight_of,
)

# Halvings of a bracket between logits, before they are between keys.
BY_VALUE: tl.constexpr = tl.constexpr(12)


@triton.jit
def measure(
    values, vocab, bound, largest, rate, BLOCK: tl.constexpr, WEIGHED: tl.constexpr
):  # fmt: skip
    """How many logits are at least `bound`, and what they weigh (0 unless `WEIGHED`)."""
    count = tl.zeros((BLOCK,), tl.int32)
    mass = tl.zeros((BLOCK,), tl.int64)
    for first in range(0, vocab, BLOCK):
        ids = first + tl.arange(0, BLOCK)
        logits = tl.load(values + ids, mask=ids < vocab, other=float("nan"))
        taken = logits >= bound
        count += taken.to(tl.int32)
        if WEIGHED:
            mass += tl.where(taken, mass_of(weight_of(logits, largest, rate)), 0)
    return tl.sum(count, 0), tl.sum(mass, 0)


@triton.jit
def find_bound(
    values, vocab, low_bound, count_low, largest, needed, rate, listed, BLOCK: tl.constexpr,
    LIST: tl.constexpr, BY_MASS: tl.constexpr, WEIGHED: tl.constexpr,
):  # fmt: skip
    """The logit at which the order reaches `needed` tokens, or weight where `BY_MASS`.

    Tokens from `low_bound` on, `count_low` of them, reach it. Returns the logit, how many tokens
    are above it, what they weigh, and how many have it. Halves a bracket, walking the row, until
    at most `LIST` tokens are inside; those are listed in scratch (`listed`, i32 [LIST]) and the
    rest is done on the list.
    """
    low = key_of(low_bound).to(tl.int64)
    high = key_of(largest).to(tl.int64) + 1  # from here on `needed` isn't reached
    count_high = needed.to(tl.int32) * 0
    mass_high = needed.to(tl.int64) * 0
    # Below this logit there is nothing, or little that is ever asked for.
    floor = largest - 64.0
    if BY_MASS:
        floor = largest - 44.0 / rate
    halvings = 0
    while (high - low > 1) & (count_low - count_high > LIST):
        lower = logit_of(low.to(tl.int32))
        lower = tl.where(lower > floor, lower, floor)
        upper = logit_of((high - 1).to(tl.int32))
        guess = key_of(lower + (upper - lower) * 0.5).to(tl.int64)
        usable = (halvings < BY_VALUE) & (guess > low) & (guess < high)
        middle = tl.where(usable, guess, low + (high - low) // 2)
        bound = logit_of(middle.to(tl.int32))
        count, mass = measure(values, vocab, bound, largest, rate, BLOCK, WEIGHED)
        reached = mass >= needed if BY_MASS else count >= needed
        low = tl.where(reached, middle, low)
        count_low = tl.where(reached, count, count_low)
        high = tl.where(reached, high, middle)
        count_high = tl.where(reached, count_high, count)
        mass_high = tl.where(reached, mass_high, mass)
        halvings += 1
    ties = count_low - count_high
    if high - low > 1:
        _list_keys(values, vocab, low.to(tl.int32), high.to(tl.int32), listed, BLOCK)
        place = tl.arange(0, LIST)
        keys = tl.load(listed + place, mask=place < ties, other=NAN_KEY)
        masses = tl.zeros((LIST,), tl.int64)
        if WEIGHED:
            weights = weight_of(logit_of(keys), largest, rate)
            masses = tl.where(keys != NAN_KEY, mass_of(weights), 0)
        while high - low > 1:
            middle = low + (high - low) // 2
            if BY_MASS:
                reached = mass_high + tl.sum(tl.where(keys >= middle, masses, 0), 0) >= needed
            else:
                reached = count_high + tl.sum((keys >= middle).to(tl.int32), 0) >= needed
            low = tl.where(reached, middle, low)
            high = tl.where(reached, high, middle)
        # What isn't listed and above is in `count_high` and `mass_high` already.
        above = keys > low
        count_high += tl.sum(above.to(tl.int32), 0)
        mass_high += tl.sum(tl.where(above, masses, 0), 0)
        ties = tl.sum((keys == low).to(tl.int32), 0)
    return logit_of(low.to(tl.int32)), count_high, mass_high, ties


@triton.jit
def _list_keys(values, vocab, low, high, listed, BLOCK: tl.constexpr):
    """Lists the keys from `low` to below `high`, in id order."""
    filled = vocab * 0
    tl.debug_barrier()  # nobody reads an earlier list any more
    for first in range(0, vocab, BLOCK):
        ids = first + tl.arange(0, BLOCK)
        keys = key_of(tl.load(values + ids, mask=ids < vocab, other=float("nan")))
        inside = ((keys >= low) & (keys < high)).to(tl.int32)
        tl.store(listed + filled + tl.cumsum(inside, 0) - 1, keys, mask=inside != 0)
        filled += tl.sum(inside, 0)
    tl.debug_barrier()


@triton.jit
def last_id(values, vocab, bound, wanted, ties, BLOCK: tl.constexpr):
    """The id of the token that is number `wanted` among the `ties` that have this logit; `vocab`
    where all of them are taken."""
    found = vocab * 1
    if wanted < ties:
        found = vocab * 0
        seen = vocab * 0
        for first in range(0, vocab, BLOCK):
            ids = first + tl.arange(0, BLOCK)
            logits = tl.load(values + ids, mask=ids < vocab, other=float("nan"))
            tied = (logits == bound).to(tl.int32)
            number = seen + tl.cumsum(tied, 0)
            found += tl.sum(tl.where((tied != 0) & (number == wanted), ids, 0), 0)
            seen += tl.sum(tied, 0)
    return found


@triton.jit
def takes(logits, ids, bound, last):
    """Which tokens a cut takes."""
    return (logits > bound) | ((logits == bound) & (ids <= last))


@triton.jit
def report_likeliest(
    values, vocab, wanted, best, log_sum, listed, likeliest, top_tokens, top_logprobs,
    BLOCK: tl.constexpr, LIST: tl.constexpr, CAPACITY: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """The first `wanted` tokens of the row's order and their logprobs, then −1 and 0 up to
    `CAPACITY`; fewer where logits are NaN. `likeliest`, i32 [PLACES], is scratch."""
    place = tl.arange(0, PLACES)
    reported = place < CAPACITY
    found = vocab * 0
    if wanted > 0:
        largest = best_logit(best)
        lowest = tl.full((), float("-inf"), tl.float32)
        count, _ = measure(values, vocab, lowest, largest, 1.0, BLOCK, False)
        found = tl.minimum(wanted, count)
        if found > 0:
            bound, above, _, ties = find_bound(
                values, vocab, lowest, count, largest, found, 1.0, listed, BLOCK, LIST, False,
                False,
            )  # fmt: skip
            last = last_id(values, vocab, bound, found - above, ties, BLOCK)
            filled = vocab * 0
            for first in range(0, vocab, BLOCK):
                ids = first + tl.arange(0, BLOCK)
                logits = tl.load(values + ids, mask=ids < vocab, other=float("nan"))
                taken = takes(logits, ids, bound, last).to(tl.int32)
                tl.store(likeliest + filled + tl.cumsum(taken, 0) - 1, ids, mask=taken != 0)
                filled += tl.sum(taken, 0)
            tl.debug_barrier()
    live = place < found
    ids = tl.load(likeliest + place, mask=live, other=0)
    reported_logits = tl.load(values + ids, mask=live, other=float("nan"))
    keys = key_of(reported_logits)
    # Ids are listed in ascending order: of equal keys, the earlier place comes first.
    ahead = (keys[None, :] > keys[:, None]) | (
        (keys[None, :] == keys[:, None]) & (place[None, :] < place[:, None])
    )
    rank = tl.sum((ahead & live[None, :]).to(tl.int32), 1)
    tl.store(top_tokens + rank, ids, mask=live)
    tl.store(top_logprobs + rank, logprob_of(reported_logits, best_logit(best), log_sum), mask=live)
    tl.store(top_tokens + place, -1, mask=reported & (place >= found))
    tl.store(top_logprobs + place, 0.0, mask=reported & (place >= found))
