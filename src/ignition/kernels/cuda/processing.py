"""What a request's bias, penalties, masks and exclusions make of a row of logits, on the device.

One program processes a row into scratch. `state` and `asked` point to the slot's state and
sampling row; they, counts and masks are addressed as i32 words.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ignition.kernels.cuda.logit_rows import INFINITY, best_of
from ignition.kernels.cuda.request_words import (
    BAD_TOKENS,
    BAD_WORD_COUNT,
    BAD_WORDS,
    BIAS,
    BIAS_COUNT,
    BIAS_TOKENS,
    BIASES,
    EMITTED,
    EOS_COUNT,
    EOS_IDS,
    FREQUENCY_PENALTY,
    MIN_TOKENS,
    PRESENCE_PENALTY,
    RECENT,
    RECENT_COUNT,
    REPETITION_PENALTY,
    STOP_COUNT,
    STOP_IDS,
    STOPS,
)


@triton.jit
def f32_at(pointer, live):
    """An f32 of a row of i32 elements, 0 unless `live`."""
    return tl.load(pointer, mask=live, other=0).to(tl.float32, bitcast=True)


@triton.jit
def counts_tokens(state, live):
    """Whether the request's penalties look at what tokens there are."""
    repetition = f32_at(state + REPETITION_PENALTY, live)
    other = (f32_at(state + PRESENCE_PENALTY, live) != 0.0) | (
        f32_at(state + FREQUENCY_PENALTY, live) != 0.0
    )
    return ((repetition != 0.0) & (repetition != 1.0)) | other


@triton.jit
def awaits_least(state, live):
    """Whether the output is shorter than the least length."""
    emitted = tl.load(state + EMITTED, mask=live, other=0)
    return emitted < tl.load(state + MIN_TOKENS, mask=live, other=0)


@triton.jit
def join_masks(
    own, masked, grammar, allowed, vocab, WORDS: tl.constexpr, GRAMMAR: tl.constexpr
):  # fmt: skip
    """Joins the request's mask, where it is `masked`, and the grammar's into `allowed`. Whether
    they exclude a token; where they don't, `allowed` is undefined. Each word is read once."""
    words = (vocab + 31) // 32
    excludes = tl.zeros((), tl.int32)
    if masked | GRAMMAR:
        own_words = tl.where(masked, words, 0)
        # Bits past the vocabulary aren't anybody's.
        unowned = tl.where(vocab % 32 != 0, -1 << (vocab % 32), 0)
        for first in range(0, words, WORDS):
            word = first + tl.arange(0, WORDS)
            bits = tl.load(own + word, mask=word < own_words, other=-1)
            if GRAMMAR:
                bits &= tl.load(grammar + word, mask=word < words, other=-1)
            bits |= tl.where(word == words - 1, unowned, 0)
            tl.store(allowed + word, bits, mask=word < words)
            excludes += tl.sum((bits != -1).to(tl.int32), 0)
        tl.debug_barrier()
    return excludes > 0


@triton.jit
def _penalise_and_mask(
    logits, ids, live, state, tokens, outputs, penalises, allowed, excludes
):  # fmt: skip
    """Logits of `ids` after penalties and masks, each operation rounded by itself."""
    if penalises:
        counted = tl.load(tokens + ids, mask=live, other=0)
        said = tl.load(outputs + ids, mask=live, other=0)
        repetition = f32_at(state + REPETITION_PENALTY, True)
        repetition = tl.where(repetition == 0.0, 1.0, repetition)
        repeated = tl.where(logits > 0.0, tl.div_rn(logits, repetition), logits * repetition)
        logits = tl.where(counted > 0, repeated, logits)
        logits = logits - f32_at(state + FREQUENCY_PENALTY, True) * said.to(tl.float32)
        logits = logits - tl.where(said > 0, f32_at(state + PRESENCE_PENALTY, True), 0.0)
    if excludes:
        words = tl.load(allowed + ids // 32, mask=live, other=0)
        logits = tl.where(((words >> (ids % 32)) & 1) != 0, logits, -INFINITY)
    return logits


@triton.jit
def process(
    raw, out, vocab, state, has_state, asked, has_asked, tokens, outputs, penalises, allowed,
    excludes, narrows, BLOCK: tl.constexpr,
):  # fmt: skip
    """Writes the row's processed logits to `out`; ends and bad words are excluded if `narrows`.
    Returns the best token and how many logits are NaN."""
    tl.debug_barrier()  # whoever read an earlier row there has done so
    for first in range(0, vocab, BLOCK):
        ids = first + tl.arange(0, BLOCK)
        live = ids < vocab
        logits = tl.load(raw + ids, mask=live, other=0.0)
        logits = _penalise_and_mask(
            logits, ids, live, state, tokens, outputs, penalises, allowed, excludes
        )
        tl.store(out + ids, logits, mask=live)
    if has_asked:
        biases = tl.load(asked + BIASES)
        if biases > 0:
            tl.debug_barrier()
            _bias(
                raw, out, vocab, state, asked, tl.minimum(biases, BIAS_COUNT), tokens, outputs,
                penalises, allowed, excludes,
            )  # fmt: skip
    if narrows:
        tl.debug_barrier()
        _exclude(out, vocab, state, has_state, asked, has_asked)
    tl.debug_barrier()
    best = tl.full((BLOCK,), -INFINITY, tl.float32)
    best_id = tl.arange(0, BLOCK)
    broken = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, vocab, BLOCK):
        ids = first + tl.arange(0, BLOCK)
        logits = tl.load(out + ids, mask=ids < vocab, other=-INFINITY)
        broken += (logits != logits).to(tl.int32)
        better = logits > best
        best = tl.where(better, logits, best)
        best_id = tl.where(better, ids, best_id)
    return best_of(best, best_id), tl.sum(broken, 0)


@triton.jit
def _bias(
    raw, out, vocab, state, asked, biases, tokens, outputs, penalises, allowed, excludes
):  # fmt: skip
    """Processes the tokens that have a bias again, from the raw logits on. Of a token that is
    listed more than once every place adds all of its biases, in order."""
    place = tl.arange(0, BIAS_COUNT)
    ids = tl.load(asked + BIAS_TOKENS + place, mask=place < biases, other=-1)
    live = (ids >= 0) & (ids < vocab)
    logits = tl.load(raw + ids, mask=live, other=0.0)
    for index in range(biases):
        same = ids == tl.load(asked + BIAS_TOKENS + index)
        logits = tl.where(same, logits + f32_at(asked + BIAS + index, True), logits)
    ids = tl.where(live, ids, 0)
    logits = _penalise_and_mask(
        logits, ids, live, state, tokens, outputs, penalises, allowed, excludes
    )
    tl.store(out + ids, logits, mask=live)


@triton.jit
def _exclude(out, vocab, state, has_state, asked, has_asked):
    """Excludes ends before the least length, and the last tokens of bad words whose others are
    what the output ends with."""
    awaits = awaits_least(state, has_state)
    ends = tl.where(awaits, EOS_COUNT, 0)
    _exclude_ids(out, vocab, state + EOS_IDS, ends, EOS_COUNT)
    stops = tl.load(asked + STOPS, mask=awaits & has_asked, other=0)
    _exclude_ids(out, vocab, asked + STOP_IDS, stops, STOP_COUNT)
    end = tl.minimum(tl.load(asked + BAD_TOKENS, mask=has_asked, other=0), BAD_WORD_COUNT)
    words = asked + BAD_WORDS
    place = tl.arange(0, RECENT_COUNT)
    at = end * 0
    while at < end:
        length = tl.load(words + at)
        whole = (length >= 1) & (length < end - at)
        # The others, against as many of the last tokens.
        before = length - 1
        remembered = whole & (before <= RECENT_COUNT)
        compared = place < tl.where(remembered, before, 0)
        theirs = tl.load(words + at + 1 + place, mask=compared, other=0)
        ours = tl.load(asked + RECENT + RECENT_COUNT - before + place, mask=compared, other=0)
        follows = remembered & (tl.sum((theirs != ours).to(tl.int32), 0) == 0)
        token = tl.load(words + at + length, mask=whole, other=-1)
        tl.store(out + token, -INFINITY, mask=follows & (token >= 0) & (token < vocab))
        at = tl.where(whole, at + 1 + length, end)


@triton.jit
def _exclude_ids(out, vocab, ids, count, CAPACITY: tl.constexpr):
    """Excludes the first `count` ids of a list."""
    place = tl.arange(0, CAPACITY)
    excluded = tl.load(ids + place, mask=place < count, other=-1)
    tl.store(out + excluded, -INFINITY, mask=(excluded >= 0) & (excluded < vocab))
