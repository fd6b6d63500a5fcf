"""Kernels that do what several launches at a round's beginning or end would do one after the other.

At its beginning the first program applies the page table's entries, which nothing else there
looks at; each of the others takes a row: its token, wherever that comes from, the token's row of
the embedding, and that row normed. Numbers are those of the launches by themselves, bit for bit.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ignition.kernels.cuda.codes import look_up
from ignition.kernels.cuda.requests import commit_lanes, pending, scatter_share
from ignition.kernels.cuda.rows import inverse_rms
from ignition.kernels.cuda.sampling_rows import count_lanes
from ignition.kernels.cuda.weighing import weigh_row

# Entries of a block of `scatter_share`.
ENTRIES = tl.constexpr(32)


@triton.jit
def _weight(weight, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    column = tl.arange(0, PADDED)
    return tl.load(weight + column, mask=column < WIDTH, other=0.0)


@triton.jit
def _embed(
    row, token, table, factor, x, normed, squares, vocab, scale, epsilon, WIDTH: tl.constexpr,
    PADDED: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """A row's embedding to `x`, and normed to `normed`; weighed where there is a BLOCK."""
    column = tl.arange(0, PADDED)
    inside = column < WIDTH
    known = (token >= 0) & (token < vocab)
    values = look_up(table, token, column, inside & known, vocab, WIDTH) * scale
    at = row.to(tl.int64) * WIDTH + column
    tl.store(x + at, values, mask=inside)
    if BLOCK > 0:
        weigh_row(values, factor, normed, squares, row.to(tl.int64), WIDTH, PADDED, BLOCK, BLOCKS)
    else:
        together = tl.reshape(values, (1, PADDED))
        inverse = inverse_rms(together, WIDTH, epsilon, 1, PADDED)
        result = tl.reshape(together * inverse[:, None], (PADDED,)) * factor
        tl.store(normed + at, result.to(normed.dtype.element_ty), mask=inside)


@triton.jit
def begin_prefill(
    entries, index, value, target, rows, tokens, table, weight, x, normed, squares, entry_capacity,
    target_rows, vocab, scale, epsilon, WIDTH: tl.constexpr, PADDED: tl.constexpr,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Grid 1 + rows. `scatter_i32`, `embed`, `rms_norm` or `weigh`."""
    factor = _weight(weight, WIDTH, PADDED)
    row = tl.program_id(0) - 1
    gdc_wait()
    gdc_launch_dependents()
    if row < 0:
        scatter_share(entries, index, value, target, entry_capacity, target_rows, 0, 1, ENTRIES)
    else:
        live = tl.load(rows)
        token = tl.load(tokens + row)
        if row < live:
            _embed(
                row, token, table, factor, x, normed, squares, vocab, scale, epsilon, WIDTH, PADDED,
                BLOCK, BLOCKS,
            )  # fmt: skip


@triton.jit
def begin_decode(
    entries, index, value, target, rows, slot, generation, state, tokens, positions, table, weight,
    x, normed, squares, entry_capacity, target_rows, slots, vocab, scale, epsilon,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Grid 1 + lanes. `scatter_i32`, `load_pending`, `embed`, `rms_norm` or `weigh`."""
    factor = _weight(weight, WIDTH, PADDED)
    lane = tl.program_id(0) - 1
    gdc_wait()
    gdc_launch_dependents()
    if lane < 0:
        scatter_share(entries, index, value, target, entry_capacity, target_rows, 0, 1, ENTRIES)
    else:
        live = tl.load(rows)
        token, position = pending(state, slots, slot, generation, lane, lane >= 0)
        if lane < live:
            tl.store(tokens + lane, token)
            tl.store(positions + lane, position)
            _embed(
                lane, token, table, factor, x, normed, squares, vocab, scale, epsilon, WIDTH,
                PADDED, BLOCK, BLOCKS,
            )  # fmt: skip


@triton.jit
def begin_mixed(
    entries, index, value, target, rows, decode_lanes, slot, generation, state, given_tokens,
    given_positions, tokens, positions, table, weight, x, normed, squares, entry_capacity,
    target_rows, lanes, slots, vocab, scale, epsilon, WIDTH: tl.constexpr, PADDED: tl.constexpr,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Grid 1 + rows. `scatter_i32`, `merge_pending`, `embed`, `rms_norm` or `weigh`."""
    factor = _weight(weight, WIDTH, PADDED)
    row = tl.program_id(0) - 1
    gdc_wait()
    gdc_launch_dependents()
    if row < 0:
        scatter_share(entries, index, value, target, entry_capacity, target_rows, 0, 1, ENTRIES)
    else:
        live = tl.load(rows)
        decodes = row < tl.minimum(tl.load(decode_lanes), lanes)
        token, position = pending(state, slots, slot, generation, row, decodes)
        if row < live:
            if decodes == 0:
                token = tl.load(given_tokens + row)
                position = tl.load(given_positions + row)
            tl.store(tokens + row, token)
            tl.store(positions + row, position)
            _embed(
                row, token, table, factor, x, normed, squares, vocab, scale, epsilon, WIDTH, PADDED,
                BLOCK, BLOCKS,
            )  # fmt: skip


@triton.jit
def end_round(
    rows, slot, generation, query_length, sampled, tokens, logprobs, state, lanes, out_tokens,
    out_logprobs, sampling, token_counts, output_counts, capacity, vocab, slots, sampling_slots,
    token_slots, output_slots, BLOCK: tl.constexpr, QUERY_LENGTH: tl.constexpr,
    SAMPLED: tl.constexpr,
):  # fmt: skip
    """Programs of `BLOCK` lanes. `count_sampled`, which looks at a lane's state as it is before
    `commit` changes it."""
    program = tl.program_id(0)
    gdc_wait()
    gdc_launch_dependents()
    count_lanes(
        rows, slot, generation, sampled, tokens, state, sampling, token_counts, output_counts,
        capacity, vocab, slots, sampling_slots, token_slots, output_slots, program, BLOCK, SAMPLED,
    )  # fmt: skip
    tl.debug_barrier()  # a lane's state is read by all threads that look at it
    commit_lanes(
        rows, slot, generation, query_length, sampled, tokens, logprobs, state, lanes, out_tokens,
        out_logprobs, capacity, slots, program, BLOCK, QUERY_LENGTH, SAMPLED,
    )  # fmt: skip
