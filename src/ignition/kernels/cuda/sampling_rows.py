"""Kernels on what a slot keeps for the processing of its logits: lists, counts, masks."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ignition.kernels.cuda.request_words import (
    BAD_TOKENS,
    BAD_WORD_COUNT,
    BAD_WORDS,
    BIAS,
    BIAS_COUNT,
    BIAS_TOKENS,
    BIASES,
    FINISHED,
    FREQUENCY_PENALTY,
    GENERATION,
    HEAD_WORDS,
    MASKED,
    MIN_TOKENS,
    PRESENCE_PENALTY,
    RECENT,
    RECENT_COUNT,
    REPETITION_PENALTY,
    SAMPLING_WORDS,
    STATE_WORDS,
    STOP_COUNT,
    STOP_IDS,
    STOPS,
    TOP_LOGPROBS,
)


@triton.jit
def _counts_tokens(repetition, presence, frequency):
    """Whether penalties look at what tokens there are; they are given as words."""
    repetition = repetition.to(tl.float32, bitcast=True)
    presence = presence.to(tl.float32, bitcast=True)
    frequency = frequency.to(tl.float32, bitcast=True)
    repeats = (repetition != 0.0) & (repetition != 1.0)
    return repeats | (presence != 0.0) | (frequency != 0.0)


@triton.jit
def count_sampled(
    rows, slot, generation, sampled, tokens, state, sampling, token_counts, output_counts,
    capacity, vocab, slots, sampling_slots, token_slots, output_slots, BLOCK: tl.constexpr,
    SAMPLED: tl.constexpr,
):  # fmt: skip
    """Adds each running lane's sampled token to what its penalties and bad words look at; without
    `SAMPLED` all lanes sample. `…_slots` are the rows that each buffer has."""
    gdc_wait()
    gdc_launch_dependents()
    count_lanes(
        rows, slot, generation, sampled, tokens, state, sampling, token_counts, output_counts,
        capacity, vocab, slots, sampling_slots, token_slots, output_slots, tl.program_id(0), BLOCK,
        SAMPLED,
    )  # fmt: skip


@triton.jit
def count_lanes(
    rows, slot, generation, sampled, tokens, state, sampling, token_counts, output_counts,
    capacity, vocab, slots, sampling_slots, token_slots, output_slots, program,
    BLOCK: tl.constexpr, SAMPLED: tl.constexpr,
):  # fmt: skip
    """A program's lanes of `count_sampled`; loads what dead lanes hold, as `requests` does."""
    live = tl.minimum(tl.load(rows), capacity)
    lane = program * BLOCK + tl.arange(0, BLOCK)
    mask = lane < capacity
    at = tl.load(slot + lane, mask=mask, other=-1)
    mine = tl.load(generation + lane, mask=mask, other=0)
    token = tl.load(tokens + lane, mask=mask, other=-1)
    mask &= (at >= 0) & (at < slots) & (token >= 0) & (token < vocab)
    if SAMPLED:
        mask &= tl.load(sampled + lane, mask=mask, other=0) != 0
    row = state + at * STATE_WORDS
    theirs = tl.load(row + GENERATION, mask=mask, other=0)
    finished = tl.load(row + FINISHED, mask=mask, other=1)
    repetition = tl.load(row + REPETITION_PENALTY, mask=mask, other=0)
    presence = tl.load(row + PRESENCE_PENALTY, mask=mask, other=0)
    frequency = tl.load(row + FREQUENCY_PENALTY, mask=mask, other=0)
    words = sampling + at * SAMPLING_WORDS
    remembers = mask & (at < sampling_slots)
    bad = tl.load(words + BAD_TOKENS, mask=remembers, other=0)
    runs = mask & (lane < live) & (theirs == mine) & (finished == 0)

    counts = runs & _counts_tokens(repetition, presence, frequency)
    element = at.to(tl.int64) * vocab + token
    counted = counts & (at < token_slots)
    before = tl.load(token_counts + element, mask=counted, other=0)
    tl.store(token_counts + element, before + 1, mask=counted)
    counted = counts & (at < output_slots)
    before = tl.load(output_counts + element, mask=counted, other=0)
    tl.store(output_counts + element, before + 1, mask=counted)

    remembers &= runs & (bad > 0)
    if tl.max(remembers.to(tl.int32), axis=0) > 0:
        place = tl.arange(0, RECENT_COUNT)[None, :]
        recent = words[:, None] + RECENT + place
        older = remembers[:, None] & (place + 1 < RECENT_COUNT)
        moved = tl.where(older, tl.load(recent + 1, mask=older, other=0), token[:, None])
        tl.debug_barrier()  # all of a row is read before any of it is written
        tl.store(recent, moved, mask=remembers[:, None])


@triton.jit
def initialize_sampling(
    rows, slot, repetition_penalty, presence_penalty, frequency_penalty, min_tokens, top_logprobs,
    stop_ids, bias_tokens, bias, bad_words, recent, mask, state, sampling, token_counts,
    output_counts, token_mask, capacity, vocab, slots, sampling_slots, token_slots, output_slots,
    mask_slots, BLOCK: tl.constexpr,
):  # fmt: skip
    """Grid (parts, capacity): each part clears a share of a lane's counts where its penalties are
    on; the first also writes its rows. Floats come as words."""
    part = tl.program_id(0)
    lane = tl.program_id(1)
    gdc_wait()
    gdc_launch_dependents()
    live = tl.minimum(tl.load(rows), capacity)
    if lane < live:
        at = tl.load(slot + lane)
        repetition = tl.load(repetition_penalty + lane)
        presence = tl.load(presence_penalty + lane)
        frequency = tl.load(frequency_penalty + lane)
        if at >= 0:
            if _counts_tokens(repetition, presence, frequency):
                _clear(token_counts, at, token_slots, vocab, part, BLOCK)
                _clear(output_counts, at, output_slots, vocab, part, BLOCK)
            if part == 0:
                if at < slots:
                    row = state + at * STATE_WORDS
                    tl.store(row + REPETITION_PENALTY, repetition)
                    tl.store(row + PRESENCE_PENALTY, presence)
                    tl.store(row + FREQUENCY_PENALTY, frequency)
                    tl.store(row + MIN_TOKENS, tl.load(min_tokens + lane))
                masked = _copy_mask(mask, token_mask, lane, at, mask_slots, vocab, BLOCK)
                if at < sampling_slots:
                    _write_row(
                        sampling + at * SAMPLING_WORDS, lane, masked, top_logprobs, stop_ids,
                        bias_tokens, bias, bad_words, recent,
                    )  # fmt: skip


@triton.jit
def _clear(counts, at, held, vocab, part, BLOCK: tl.constexpr):
    """Zeros every so many blocks of a slot's counts."""
    if at < held:
        nothing = tl.zeros((BLOCK,), dtype=tl.int32)
        for first in range(part * BLOCK, vocab, tl.num_programs(0) * BLOCK):
            token = first + tl.arange(0, BLOCK)
            tl.store(counts + at.to(tl.int64) * vocab + token, nothing, mask=token < vocab)


@triton.jit
def _copy_mask(mask, token_mask, lane, at, held, vocab, BLOCK: tl.constexpr):
    """Copies a lane's mask where it excludes a token, and says whether it does."""
    words = (vocab + 31) // 32
    given = mask + lane.to(tl.int64) * words
    offsets = tl.arange(0, BLOCK)
    whole = tl.full((BLOCK,), -1, dtype=tl.int32)
    excluded = 0
    if at < held:
        for first in range(0, words, BLOCK):
            word = first + offsets
            bits = tl.load(given + word, mask=word < words, other=-1)
            # Bits past the vocabulary exclude nothing.
            past = tl.where(word * 32 + 32 > vocab, whole << (vocab & 31), 0)
            excluded += tl.max(((bits | past) != -1).to(tl.int32), axis=0)
        if excluded > 0:
            kept = token_mask + at.to(tl.int64) * words
            for first in range(0, words, BLOCK):
                word = first + offsets
                bits = tl.load(given + word, mask=word < words, other=0)
                tl.store(kept + word, bits, mask=word < words)
    return tl.minimum(excluded, 1)


@triton.jit
def _write_row(
    row, lane, masked, top_logprobs, stop_ids, bias_tokens, bias, bad_words, recent,
):  # fmt: skip
    """A sampling row: its head, and of each list what is in use."""
    stops = _copy_ids(stop_ids + lane * STOP_COUNT, row + STOP_IDS, STOP_COUNT)
    biases = _copy_ids(bias_tokens + lane * BIAS_COUNT, row + BIAS_TOKENS, BIAS_COUNT)
    _copy(bias + lane * BIAS_COUNT, row + BIAS, biases, BIAS_COUNT)
    given = bad_words + lane * BAD_WORD_COUNT
    bad = 0
    length = tl.load(given)
    while (length > 0) & (length < BAD_WORD_COUNT - bad):
        bad += 1 + length
        length = tl.load(given + bad, mask=bad < BAD_WORD_COUNT, other=0)
    if bad > 0:
        _copy(given, row + BAD_WORDS, bad, BAD_WORD_COUNT)
        _copy(recent + lane * RECENT_COUNT, row + RECENT, RECENT_COUNT, RECENT_COUNT)
    place = tl.arange(0, HEAD_WORDS)
    head = tl.where(place == TOP_LOGPROBS, tl.load(top_logprobs + lane), 0)
    head = tl.where(place == STOPS, stops, head)
    head = tl.where(place == BIASES, biases, head)
    head = tl.where(place == BAD_TOKENS, bad, head)
    head = tl.where(place == MASKED, masked, head)
    tl.store(row + place, head)


@triton.jit
def _copy_ids(given, kept, COUNT: tl.constexpr):
    """Copies the ids before the first negative one, and says how many they are."""
    place = tl.arange(0, COUNT)
    ids = tl.load(given + place)
    count = tl.min(tl.where(ids < 0, place, COUNT), axis=0)
    tl.store(kept + place, ids, mask=place < count)
    return count


@triton.jit
def _copy(given, kept, count, COUNT: tl.constexpr):
    """Copies the first `count` of at most `COUNT` words."""
    place = tl.arange(0, COUNT)
    tl.store(kept + place, tl.load(given + place, mask=place < count, other=0), mask=place < count)
