"""Reference kernel of sampling from processed logits: bias, penalties, masks, then as `sampling`.

Logprobs and the likeliest tokens are those of the raw logits.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from helios.kernels.catalogue import TOP_CAPACITY
from helios.runtime.reference.arrays import F32, I32, U8, U32, Records, gather, live_rows, rows_of
from helios.runtime.reference.philox import uniform
from helios.runtime.reference.sampling import log_probability, pick, report_likeliest
from helios.runtime.reference.sampling_rows import (
    allowed_tokens,
    counts_tokens,
    mask_words,
    sampling_rows,
)
from helios.runtime.reference.state import state_rows

_Words = TypeVar("_Words", I32, U32)


def sample_processed(
    rows: I32, lane: I32 | None, slot: I32, query_length: I32 | None, state: U8, sampling: U8,
    token_counts: I32, output_counts: I32, token_mask: U32, grammar_mask: U32 | None, logits: F32,
    tokens: I32, logprobs: F32, top_tokens: I32, top_logprobs: F32,
    *, capacity: int, vocab: int, stride: int,
) -> None:  # fmt: skip
    """Picks a token for each live row's lane, and reports the likeliest where they are wanted."""
    live = live_rows(rows, capacity)
    scores = rows_of(logits, live, stride)[:, :vocab]
    words = mask_words(vocab)
    states, slots = state_rows(state), sampling_rows(sampling)
    for index in range(live):
        target = index if lane is None else int(lane[index])
        if not 0 <= target < capacity:
            continue
        at = slot[target : target + 1]
        request, row = gather(states, at)[0], gather(slots, at)[0]
        raw = scores[index]
        masks: list[U32] = []
        if row["masked"]:
            masks.append(_row(token_mask, int(at[0]), words))
        if grammar_mask is not None:
            masks.append(grammar_mask[target * words : (target + 1) * words])
        counts = None
        if counts_tokens(request):
            counts = tuple(_row(c, int(at[0]), vocab) for c in (token_counts, output_counts))
        left = processed(raw, request, row, counts, [m for m in masks if len(m)])
        consumed = 1 if query_length is None else int(query_length[target])
        token = pick(
            left,
            temperature=float(request["temperature"]),
            top_k=int(request["top_k"]),
            top_p=float(request["top_p"]),
            min_p=float(request["min_p"]),
            draw=uniform(
                int(request["seed_lo"]),
                int(request["seed_hi"]),
                int(request["consumed"]) + consumed,
            ),
        )
        tokens[target] = token
        logprobs[target] = log_probability(raw, token)
        wanted = min(max(int(row["top_logprobs"]), 0), TOP_CAPACITY)
        if wanted:
            places = slice(target * TOP_CAPACITY, (target + 1) * TOP_CAPACITY)
            report_likeliest(raw, wanted, top_tokens[places], top_logprobs[places])


def processed(
    raw: F32,
    request: Records,
    row: Records,
    counts: tuple[I32, ...] | None,
    masks: list[U32],
) -> F32:
    """What a token is chosen from: the logits after bias, penalties, masks and exclusions. Where
    these leave nothing, bad words and the least length give way."""
    left = raw.copy()
    for place in range(int(np.clip(row["biases"], 0, len(row["bias"])))):
        token = row["bias_tokens"][place]
        if 0 <= token < len(left):
            left[token] += row["bias"][place]
    if counts is not None and all(len(c) for c in counts):
        left = penalised(left, request, *counts)
    for mask in masks:
        left[~allowed_tokens(mask, len(left))] = -np.inf
    narrowed = left.copy()
    for token in excluded(request, row):
        if 0 <= token < len(left):
            narrowed[token] = -np.inf
    return narrowed if (narrowed > -np.inf).any() else left


def penalised(logits: F32, request: Records, counts: I32, outputs: I32) -> F32:
    """Repetition over all tokens so far, frequency and presence over those of the output."""
    repetition = np.float32(request["repetition_penalty"] or 1.0)
    with np.errstate(invalid="ignore", over="ignore"):
        repeated = np.where(logits > 0, logits / repetition, logits * repetition)
        logits = np.where(counts > 0, repeated, logits)
        logits = logits - np.float32(request["frequency_penalty"]) * outputs.astype(np.float32)
    presence = np.float32(request["presence_penalty"])
    result: F32 = logits - np.where(outputs > 0, presence, np.float32(0))
    return result


def excluded(request: Records, row: Records) -> list[int]:
    """Tokens that may not come next: ends before the least length, and the last ones of bad words
    whose beginning was just emitted."""
    found: list[int] = []
    if request["emitted"] < request["min_tokens"]:
        found += request["eos_ids"].tolist()
        found += row["stop_ids"][: np.clip(row["stops"], 0, len(row["stop_ids"]))].tolist()
    words, recent = row["bad_words"].tolist(), row["recent"].tolist()
    at, end = 0, int(np.clip(row["bad_tokens"], 0, len(words)))
    while at < end and 1 <= words[at] < end - at:
        *before, last = words[at + 1 : at + 1 + words[at]]
        if len(before) <= len(recent) and before == recent[len(recent) - len(before) :]:
            found.append(last)
        at += 1 + words[at]
    return found


def _row(array: _Words, slot: int, width: int) -> _Words:
    """A slot's row; empty where there is none."""
    return array[slot * width : (slot + 1) * width] if slot >= 0 else array[:0]
