"""Kernels on request state: values that the host scatters, admission, pending tokens, commit.

A program takes `BLOCK` lanes, a thread each. Rows of state, of lanes and of floats are copied as
32-bit words, whatever they hold. A slot is no more than one live lane's.

Every round runs `load_pending` and `commit`, alone on the GPU while they last: they load what dead
lanes hold too, and look at the live count when it has come, instead of waiting for it first.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ignition.kernels.cuda.request_words import (
    CONSUMED,
    EMITTED,
    EOS_COUNT,
    EOS_IDS,
    FINISHED,
    GENERATION,
    LANE_WORDS,
    MIN_P,
    MIN_TOKENS,
    OUTPUT_LIMIT,
    PENDING_TOKEN,
    REPETITION_PENALTY,
    SEED,
    STATE_WORDS,
    TEMPERATURE,
    TOP_K,
    TOP_P,
)

# Targets that lie together and are one program's in `scatter`.
GROUP = tl.constexpr(128)
# Values of a state row's `finished` and of a completion lane's `error`.
EOS = tl.constexpr(1)
LIMIT = tl.constexpr(2)
STALE_GENERATION = tl.constexpr(1)
ALREADY_FINISHED = tl.constexpr(2)


@triton.jit
def scatter(rows, index, value, target, capacity, target_rows, BLOCK: tl.constexpr):
    """`target[index[i]] = value[i]` for the live i; of several with one index the last counts."""
    gdc_wait()
    gdc_launch_dependents()
    program, programs = tl.program_id(0), tl.num_programs(0)
    scatter_share(rows, index, value, target, capacity, target_rows, program, programs, BLOCK)


@triton.jit
def scatter_share(
    rows, index, value, target, capacity, target_rows, program, programs, BLOCK: tl.constexpr
):
    """A program has the targets of its own, in groups, and walks all entries in order."""
    live = tl.minimum(tl.load(rows), capacity)
    offsets = tl.arange(0, BLOCK)
    for first in range(0, live, BLOCK):
        entry = first + offsets
        at = tl.load(index + entry, mask=entry < live, other=-1)
        given = tl.load(value + entry, mask=entry < live, other=0)
        mine = at // GROUP % programs == program
        inside = (at >= 0) & (at < target_rows)
        # Whoever comes later in this block has the last word.
        later = (at[:, None] == at[None, :]) & (offsets[None, :] > offsets[:, None])
        last = tl.max(later.to(tl.int32), axis=1) == 0
        tl.store(target + at, given, mask=inside & mine & last)
        tl.debug_barrier()  # stores of a later block come after these


@triton.jit
def initialize(
    rows, slot, generation, consumed, emitted, output_limit, seed, temperature, top_k, top_p,
    min_p, eos_ids, state, capacity, slots, BLOCK: tl.constexpr,
):  # fmt: skip
    """A fresh state row for each live lane's slot; floats come as words."""
    gdc_wait()
    gdc_launch_dependents()
    live = tl.minimum(tl.load(rows), capacity)
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lane < live
    at = tl.load(slot + lane, mask=mask, other=-1)
    mask &= (at >= 0) & (at < slots)
    row = state + at * STATE_WORDS
    nothing = tl.zeros((BLOCK,), dtype=tl.int32)
    tl.store(row + PENDING_TOKEN, nothing, mask=mask)
    tl.store(row + CONSUMED, tl.load(consumed + lane, mask=mask), mask=mask)
    tl.store(row + EMITTED, tl.load(emitted + lane, mask=mask), mask=mask)
    tl.store(row + OUTPUT_LIMIT, tl.load(output_limit + lane, mask=mask), mask=mask)
    tl.store(row + GENERATION, tl.load(generation + lane, mask=mask), mask=mask)
    tl.store(row + FINISHED, nothing, mask=mask)
    tl.store(row + SEED, tl.load(seed + 2 * lane, mask=mask), mask=mask)
    tl.store(row + SEED + 1, tl.load(seed + 2 * lane + 1, mask=mask), mask=mask)
    tl.store(row + TEMPERATURE, tl.load(temperature + lane, mask=mask), mask=mask)
    tl.store(row + TOP_P, tl.load(top_p + lane, mask=mask), mask=mask)
    tl.store(row + MIN_P, tl.load(min_p + lane, mask=mask), mask=mask)
    tl.store(row + TOP_K, tl.load(top_k + lane, mask=mask), mask=mask)
    for word in tl.static_range(REPETITION_PENALTY, MIN_TOKENS + 1):
        tl.store(row + word, nothing, mask=mask)
    eos = tl.arange(0, EOS_COUNT)[None, :]
    ids = tl.load(eos_ids + lane[:, None] * EOS_COUNT + eos, mask=mask[:, None])
    tl.store(row[:, None] + EOS_IDS + eos, ids, mask=mask[:, None])


@triton.jit
def pending(state, slots, slot, generation, lane, mask):
    """Token and position of lanes: 0 and −1 where a lane doesn't run. A slot that isn't there
    holds zeros."""
    at = tl.load(slot + lane, mask=mask, other=-1)
    held = mask & (at >= 0) & (at < slots)
    row = state + at * STATE_WORDS
    runs = tl.load(row + GENERATION, mask=held, other=0) == tl.load(
        generation + lane, mask=mask, other=0
    )
    runs &= tl.load(row + FINISHED, mask=held, other=0) == 0
    token = tl.load(row + PENDING_TOKEN, mask=held, other=0)
    consumed = tl.load(row + CONSUMED, mask=held, other=0)
    return tl.where(runs, token, 0), tl.where(runs, consumed, -1)


@triton.jit
def load_pending(
    rows, slot, generation, state, tokens, positions, capacity, slots, BLOCK: tl.constexpr
):
    """Each lane's pending token and its position."""
    gdc_wait()
    gdc_launch_dependents()
    load_lanes(
        rows, slot, generation, state, tokens, positions, capacity, slots, tl.program_id(0), BLOCK
    )


@triton.jit
def load_lanes(
    rows, slot, generation, state, tokens, positions, capacity, slots, program, BLOCK: tl.constexpr
):
    """A program's lanes of `load_pending`."""
    live = tl.minimum(tl.load(rows), capacity)
    lane = program * BLOCK + tl.arange(0, BLOCK)
    token, position = pending(state, slots, slot, generation, lane, lane < capacity)
    tl.store(tokens + lane, token, mask=lane < live)
    tl.store(positions + lane, position, mask=lane < live)


@triton.jit
def set_pending(rows, slot, generation, token, state, capacity, slots, BLOCK: tl.constexpr):
    """Sets running lanes' pending tokens."""
    gdc_wait()
    gdc_launch_dependents()
    live = tl.minimum(tl.load(rows), capacity)
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = lane < live
    at = tl.load(slot + lane, mask=mask, other=-1)
    mask &= (at >= 0) & (at < slots)
    row = state + at * STATE_WORDS
    given = tl.load(token + lane, mask=mask)
    mine = tl.load(generation + lane, mask=mask)
    runs = tl.load(row + GENERATION, mask=mask) == mine
    runs &= tl.load(row + FINISHED, mask=mask) == 0
    tl.store(row + PENDING_TOKEN, given, mask=mask & runs)


@triton.jit
def merge_pending(
    rows, decode_lanes, slot, generation, state, tokens, positions, out_tokens, out_positions,
    capacity, lanes, slots, BLOCK: tl.constexpr,
):  # fmt: skip
    """Packed rows: those of the decoding lanes from device state, the rest from the host."""
    gdc_wait()
    gdc_launch_dependents()
    merge_rows(
        rows, decode_lanes, slot, generation, state, tokens, positions, out_tokens, out_positions,
        capacity, lanes, slots, tl.program_id(0), BLOCK,
    )  # fmt: skip


@triton.jit
def merge_rows(
    rows, decode_lanes, slot, generation, state, tokens, positions, out_tokens, out_positions,
    capacity, lanes, slots, program, BLOCK: tl.constexpr,
):  # fmt: skip
    """A program's rows of `merge_pending`."""
    live = tl.minimum(tl.load(rows), capacity)
    decoding = tl.minimum(tl.load(decode_lanes), lanes)
    row = program * BLOCK + tl.arange(0, BLOCK)
    mask = row < live
    decodes = mask & (row < decoding)
    token, position = pending(state, slots, slot, generation, row, decodes)
    given = mask & (row >= decoding)
    token = tl.where(given, tl.load(tokens + row, mask=given, other=0), token)
    position = tl.where(given, tl.load(positions + row, mask=given, other=0), position)
    tl.store(out_tokens + row, token, mask=mask)
    tl.store(out_positions + row, position, mask=mask)


@triton.jit
def commit(
    rows, slot, generation, query_length, sampled, tokens, logprobs, state, lanes, out_tokens,
    out_logprobs, capacity, slots, BLOCK: tl.constexpr, QUERY_LENGTH: tl.constexpr,
    SAMPLED: tl.constexpr,
):  # fmt: skip
    """Advances each lane by what the round consumed and sampled, and writes its completion row.

    Without `QUERY_LENGTH` a lane consumed one token, without `SAMPLED` all of them sampled.
    """
    gdc_wait()
    gdc_launch_dependents()
    commit_lanes(
        rows, slot, generation, query_length, sampled, tokens, logprobs, state, lanes, out_tokens,
        out_logprobs, capacity, slots, tl.program_id(0), BLOCK, QUERY_LENGTH, SAMPLED,
    )  # fmt: skip


@triton.jit
def commit_lanes(
    rows, slot, generation, query_length, sampled, tokens, logprobs, state, lanes, out_tokens,
    out_logprobs, capacity, slots, program, BLOCK: tl.constexpr, QUERY_LENGTH: tl.constexpr,
    SAMPLED: tl.constexpr,
):  # fmt: skip
    """A program's lanes of `commit`."""
    live = tl.minimum(tl.load(rows), capacity)
    lane = program * BLOCK + tl.arange(0, BLOCK)
    inside = lane < capacity
    at = tl.load(slot + lane, mask=inside, other=-1)
    mine = tl.load(generation + lane, mask=inside, other=0)
    token = tl.load(tokens + lane, mask=inside, other=-1)
    logprob = tl.load(logprobs + lane, mask=inside, other=0)
    length = 1
    if QUERY_LENGTH:
        length = tl.load(query_length + lane, mask=inside, other=0)
    samples = inside
    if SAMPLED:
        samples &= tl.load(sampled + lane, mask=inside, other=0) != 0
    held = (at >= 0) & (at < slots)
    row = state + at * STATE_WORDS
    consumed = tl.load(row + CONSUMED, mask=held, other=0)
    emitted = tl.load(row + EMITTED, mask=held, other=0)
    limit = tl.load(row + OUTPUT_LIMIT, mask=held, other=0)
    theirs = tl.load(row + GENERATION, mask=held, other=0)
    finished = tl.load(row + FINISHED, mask=held, other=0)
    eos = tl.arange(0, EOS_COUNT)[None, :]
    ids = tl.load(row[:, None] + EOS_IDS + eos, mask=held[:, None], other=-1)
    ends = (tl.max((ids == token[:, None]).to(tl.int32), axis=1) > 0) & (token >= 0)

    mask = lane < live
    stale = (theirs != mine) | (held == 0)
    error = tl.where(stale, STALE_GENERATION, tl.where(finished != 0, ALREADY_FINISHED, 0))
    runs = mask & (error == 0)
    samples &= runs
    consumed += tl.where(runs, length, 0)
    emitted += samples.to(tl.int32)
    finish = tl.where(ends, EOS, tl.where(emitted >= limit, LIMIT, 0))
    tl.store(row + CONSUMED, consumed, mask=runs)
    tl.store(row + PENDING_TOKEN, token, mask=samples)
    tl.store(row + EMITTED, emitted, mask=samples)
    tl.store(row + FINISHED, finish, mask=samples)

    record = lanes + lane * LANE_WORDS
    nothing = tl.zeros((BLOCK,), dtype=tl.int32)
    tl.store(record, at, mask=mask)
    tl.store(record + 1, mine, mask=mask)
    tl.store(record + 2, samples.to(tl.int32), mask=mask)
    tl.store(record + 3, consumed, mask=mask)
    tl.store(record + 4, tl.where(samples, finish, 0), mask=mask)
    tl.store(record + 5, nothing - 1, mask=mask)
    tl.store(record + 6, nothing - 1, mask=mask)
    tl.store(record + 7, nothing, mask=mask)
    tl.store(record + 8, nothing, mask=mask)
    tl.store(record + 9, error, mask=mask)
    tl.store(record + 10, nothing, mask=mask)
    tl.store(record + 11, nothing, mask=mask)
    tl.store(out_tokens + lane, tl.where(samples, token, -1), mask=mask)
    tl.store(out_logprobs + lane, tl.where(samples, logprob, 0), mask=mask)
