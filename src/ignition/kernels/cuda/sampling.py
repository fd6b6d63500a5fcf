"""Kernels that sample tokens and score them.

- `scan_sample`, `scan_score`: several programs a row, one a chunk of the vocabulary. What a lane
  that samples greedily from raw logits needs, and every score, is done when these end.
- `finish_sample`, `finish_score`: one program a row for what is left: draws, processed logits, the
  likeliest tokens. A row with nothing left costs one read.

Between them a row hands over, in scratch: `results` i64 [capacity, 2], its best token and the bits
of its f64 log-sum, and `work` i32 [capacity], what is left to do. `arrivals` i32 [capacity] is zero
before and after a launch. A grammar's mask may lie in the host's memory: of a greedy lane one word
is read, of a lane that draws the row, once.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from helios.kernels.catalogue import TOP_CAPACITY
from ignition.kernels.cuda.drawing import draw
from ignition.kernels.cuda.logit_rows import (
    INFINITY,
    arrives_last,
    best_id,
    best_logit,
    fold_chunks,
    logprob_of,
    scan_chunk,
)
from ignition.kernels.cuda.philox import uniform
from ignition.kernels.cuda.processing import (
    awaits_least,
    counts_tokens,
    f32_at,
    join_masks,
    process,
)
from ignition.kernels.cuda.request_words import (
    BAD_TOKENS,
    BIASES,
    CONSUMED,
    MASKED,
    MIN_P,
    SAMPLING_WORDS,
    SEED,
    STATE_WORDS,
    TEMPERATURE,
    TOP_K,
    TOP_LOGPROBS,
    TOP_P,
)
from ignition.kernels.cuda.row_order import report_likeliest

TOP_COUNT: tl.constexpr = tl.constexpr(TOP_CAPACITY)
# Bits of `work`.
CHOOSE: tl.constexpr = tl.constexpr(1)
REPORT: tl.constexpr = tl.constexpr(2)


@triton.jit
def _lane_of(row, lane, slot, capacity, LANE: tl.constexpr):
    """The row's lane, −1 where it is out of range, and the lane's slot."""
    target = row
    if LANE:
        target = tl.load(lane + row)
    inside = (target >= 0) & (target < capacity)
    return tl.where(inside, target, -1), tl.load(slot + target, mask=inside, other=-1)


@triton.jit
def scan_sample(
    rows, lane, slot, state, sampling, grammar_mask, logits, tokens, logprobs, bests, sums,
    results, work, arrivals, capacity, vocab, stride, chunks, state_slots, sampling_slots,
    LANE: tl.constexpr, PROCESSED: tl.constexpr, GRAMMAR: tl.constexpr, CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
):  # fmt: skip
    """Grid (chunks, capacity). Scratch: `bests` i64, `sums` f32 [capacity, chunks]."""
    chunk = tl.program_id(0)
    row = tl.program_id(1)
    gdc_wait()
    gdc_launch_dependents()
    live = tl.minimum(tl.load(rows), capacity)
    at = row * 0 - 1
    if not LANE:
        at = tl.load(slot + row)  # on its way while `rows` is
    if row < live:
        ids = chunk * CHUNK + tl.arange(0, CHUNK)
        raw = logits + stride.to(tl.int64) * row
        values = tl.load(raw + ids, mask=ids < vocab, other=-INFINITY)
        target = row
        if LANE:
            target, at = _lane_of(row, lane, slot, capacity, LANE)
        has_state = (at >= 0) & (at < state_slots)
        own = state + at.to(tl.int64) * STATE_WORDS
        left = f32_at(own + TEMPERATURE, has_state) > 0.0
        wanted = 0
        if PROCESSED:
            has_asked = (at >= 0) & (at < sampling_slots)
            asked = sampling + at.to(tl.int64) * SAMPLING_WORDS
            wanted = tl.load(asked + TOP_LOGPROBS, mask=has_asked, other=0)
            left |= tl.load(asked + BIASES, mask=has_asked, other=0) > 0
            left |= tl.load(asked + BAD_TOKENS, mask=has_asked, other=0) > 0
            left |= tl.load(asked + MASKED, mask=has_asked, other=0) != 0
            left |= counts_tokens(own, has_state) | awaits_least(own, has_state)
        scan_chunk(values, ids, bests, sums, row * chunks + chunk)
        if arrives_last(arrivals + row, chunks):
            best, log_sum = fold_chunks(bests, sums, row * chunks, chunks, CHUNKS)
            token = best_id(best)
            if GRAMMAR:
                # A token that the mask allows stays the best of those that it allows.
                words = grammar_mask + target.to(tl.int64) * ((vocab + 31) // 32)
                word = tl.load(words + token // 32, mask=(target >= 0) & (not left), other=-1)
                left |= ((word >> (token % 32)) & 1) == 0
            tl.store(results + row * 2, best)
            tl.store(results + row * 2 + 1, log_sum.to(tl.int64, bitcast=True))
            todo = tl.where(left, CHOOSE, 0) | tl.where(wanted > 0, REPORT, 0)
            tl.store(work + row, tl.where(target >= 0, todo, 0))
            logit = tl.load(raw + token)
            now = (target >= 0) & (not left)
            tl.store(tokens + target, token, mask=now)
            tl.store(logprobs + target, logprob_of(logit, best_logit(best), log_sum), mask=now)


@triton.jit
def finish_sample(
    rows, lane, slot, query_length, state, sampling, token_counts, output_counts, token_mask,
    grammar_mask, logits, tokens, logprobs, top_tokens, top_logprobs, results, work, listed,
    likeliest, allowed, processed, capacity, vocab, stride, state_slots, sampling_slots,
    token_counts_slots, output_counts_slots, token_mask_slots, LANE: tl.constexpr,
    QUERY_LENGTH: tl.constexpr, PROCESSED: tl.constexpr, GRAMMAR: tl.constexpr,
    BLOCK: tl.constexpr, LIST: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """Any grid of one axis. Every row is chosen for, then, if `PROCESSED`, reported, by programs in
    turn.

    Scratch, a row for each program: `listed` i32 [LIST], `likeliest` i32 [32], `allowed` i32
    [⌈V/32⌉], `processed` f32 [V].
    """
    program = tl.program_id(0)
    listed += program * LIST
    likeliest += program * 32
    words = (vocab + 31) // 32
    allowed += program * words
    processed += program.to(tl.int64) * vocab
    gdc_wait()
    gdc_launch_dependents()
    live = tl.minimum(tl.load(rows), capacity)
    tasks = live * 2 if PROCESSED else live
    for task in range(program, tasks, tl.num_programs(0)):
        reports = task >= live
        row = tl.where(reports, task - live, task)
        todo = tl.load(work + row)
        if (todo & tl.where(reports, REPORT, CHOOSE)) != 0:
            tl.debug_barrier()  # the scratch of an earlier row isn't read any more
            raw = logits + stride.to(tl.int64) * row
            best = tl.load(results + row * 2)
            log_sum = tl.load(results + row * 2 + 1).to(tl.float64, bitcast=True)
            target, at = _lane_of(row, lane, slot, capacity, LANE)
            wide = at.to(tl.int64)
            own = state + wide * STATE_WORDS
            asked = sampling + wide * SAMPLING_WORDS
            if PROCESSED and reports:
                wanted = tl.minimum(tl.load(asked + TOP_LOGPROBS), TOP_COUNT)
                report_likeliest(
                    raw, vocab, wanted, best, log_sum, listed, likeliest,
                    top_tokens + target * TOP_COUNT, top_logprobs + target * TOP_COUNT, BLOCK,
                    LIST, TOP_COUNT, 32,
                )  # fmt: skip
            else:
                has_state = (at >= 0) & (at < state_slots)
                values = raw
                largest = best_logit(best)
                token = best_id(best)
                broken = (log_sum != log_sum).to(tl.int32)
                if PROCESSED:
                    values, largest, token, broken = _process(
                        raw, own, has_state, asked, (at >= 0) & (at < sampling_slots),
                        token_counts + wide * vocab, output_counts + wide * vocab,
                        (at >= 0) & (at < token_counts_slots) & (at < output_counts_slots),
                        token_mask + wide * words, at < token_mask_slots,
                        grammar_mask + target.to(tl.int64) * words, allowed, processed, vocab,
                        largest, token, broken, GRAMMAR, BLOCK, WORDS,
                    )  # fmt: skip
                temperature = f32_at(own + TEMPERATURE, has_state)
                if (temperature > 0.0) & (broken == 0):
                    length = 1
                    if QUERY_LENGTH:
                        length = tl.load(query_length + target)
                    position = tl.load(own + CONSUMED) + length
                    u = uniform(tl.load(own + SEED), tl.load(own + SEED + 1), position)
                    min_p = f32_at(own + MIN_P, True)
                    token = draw(
                        values, vocab, largest, token, temperature, tl.load(own + TOP_K),
                        f32_at(own + TOP_P, True), tl.where(min_p > 0.0, min_p, 0.0), u, listed,
                        BLOCK, LIST,
                    )  # fmt: skip
                logprob = logprob_of(tl.load(raw + token), best_logit(best), log_sum)
                tl.store(tokens + target, token)
                tl.store(logprobs + target, logprob)


@triton.jit
def _process(
    raw, own, has_state, asked, has_asked, counts, outputs, has_counts, mask, has_mask, grammar,
    allowed, processed, vocab, largest, token, broken, GRAMMAR: tl.constexpr, BLOCK: tl.constexpr,
    WORDS: tl.constexpr,
):  # fmt: skip
    """The logits that the lane chooses from, the largest, its token, and how many are NaN: as given
    where the lane asks for nothing of this."""
    values = raw
    penalises = counts_tokens(own, has_state) & has_counts
    masked = tl.load(asked + MASKED, mask=has_asked, other=0) != 0
    excludes = join_masks(mask, masked & has_mask, grammar, allowed, vocab, WORDS, GRAMMAR)
    narrows = awaits_least(own, has_state)
    narrows |= tl.load(asked + BAD_TOKENS, mask=has_asked, other=0) > 0
    biased = tl.load(asked + BIASES, mask=has_asked, other=0) > 0
    attempts = 0
    if penalises | excludes | narrows | biased:
        values = processed
        attempts = 2
    while attempts > 0:
        best, broken = process(
            raw, values, vocab, own, has_state, asked, has_asked, counts, outputs, penalises,
            allowed, excludes, narrows, BLOCK,
        )  # fmt: skip
        largest = best_logit(best)
        token = best_id(best)
        # Where nothing is left, least length and bad words give way.
        again = narrows & (largest == -INFINITY)
        attempts = tl.where(again, attempts - 1, 0)
        narrows = narrows & (not again)
    return values, largest, token, broken


@triton.jit
def scan_score(
    rows, target, logits, out, rank, bests, sums, befores, results, arrivals, capacity, vocab,
    stride, chunks, RANKED: tl.constexpr, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """Grid (chunks, capacity). Scratch as `scan_sample`; `befores` i32 [capacity, chunks]: tokens
    of a chunk that are before the target in the order."""
    chunk = tl.program_id(0)
    row = tl.program_id(1)
    gdc_wait()
    gdc_launch_dependents()
    if row < tl.minimum(tl.load(rows), capacity):
        ids = chunk * CHUNK + tl.arange(0, CHUNK)
        raw = logits + stride.to(tl.int64) * row
        values = tl.load(raw + ids, mask=ids < vocab, other=-INFINITY)
        token = tl.load(target + row)
        known = (token >= 0) & (token < vocab)
        logit = tl.load(raw + token, mask=known, other=float("nan"))
        if RANKED:
            before = (values > logit) | ((values == logit) & (ids < token))
            counted = tl.sum((before & (ids < vocab)).to(tl.int32), 0)
            tl.store(befores + row * chunks + chunk, counted)
        scan_chunk(values, ids, bests, sums, row * chunks + chunk)
        if arrives_last(arrivals + row, chunks):
            best, log_sum = fold_chunks(bests, sums, row * chunks, chunks, CHUNKS)
            scored = logprob_of(logit, best_logit(best), log_sum)
            tl.store(out + row, tl.where(known, scored, float("nan")))
            if RANKED:
                part = tl.arange(0, CHUNKS)
                parts = tl.load(befores + row * chunks + part, mask=part < chunks, other=0)
                tl.store(rank + row, tl.where(known, tl.sum(parts, 0) + 1, 0))
                tl.store(results + row * 2, best)
                tl.store(results + row * 2 + 1, log_sum.to(tl.int64, bitcast=True))


@triton.jit
def finish_score(
    rows, target, wanted, logits, top_tokens, top_logprobs, results, listed, likeliest, capacity,
    vocab, stride, BLOCK: tl.constexpr, LIST: tl.constexpr,
):  # fmt: skip
    """Any grid of one axis; programs take rows in turn. Scratch, a row for each program: `listed`
    i32 [LIST], `likeliest` i32 [32]."""
    program = tl.program_id(0)
    listed += program * LIST
    likeliest += program * 32
    gdc_wait()
    gdc_launch_dependents()
    live = tl.minimum(tl.load(rows), capacity)
    for row in range(program, live, tl.num_programs(0)):
        asked = tl.minimum(tl.load(wanted + row), TOP_COUNT)
        if asked > 0:
            tl.debug_barrier()  # the scratch of an earlier row isn't read any more
            token = tl.load(target + row)
            known = (token >= 0) & (token < vocab)
            report_likeliest(
                logits + stride.to(tl.int64) * row, vocab, tl.where(known, asked, 0),
                tl.load(results + row * 2),
                tl.load(results + row * 2 + 1).to(tl.float64, bitcast=True), listed, likeliest,
                top_tokens + row * TOP_COUNT, top_logprobs + row * TOP_COUNT, BLOCK, LIST,
                TOP_COUNT, 32,
            )  # fmt: skip
