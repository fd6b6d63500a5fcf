"""Reference kernels on what a slot keeps for the processing of its logits: lists, counts, masks.

The sampling row is declared once here as a numpy record; `processing` reads it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from helios.kernels.catalogue import (
    BAD_WORD_CAPACITY,
    BIAS_CAPACITY,
    MASK_WORD_BITS,
    RECENT_CAPACITY,
    SAMPLING_ROW_NBYTES,
    STOP_CAPACITY,
)
from helios.runtime.reference.arrays import F32, I32, U8, U32, Bools, Records, live_rows
from helios.runtime.reference.state import state_rows
from helios.runtime.rounds import DeviceFinish

_HEAD: Final = ("top_logprobs", "stops", "biases", "bad_tokens", "masked")
_HEAD_NBYTES: Final = 64
_LISTS: Final = {
    "recent": ("<i4", RECENT_CAPACITY),
    "stop_ids": ("<i4", STOP_CAPACITY),
    "bias_tokens": ("<i4", BIAS_CAPACITY),
    "bias": ("<f4", BIAS_CAPACITY),
    "bad_words": ("<i4", BAD_WORD_CAPACITY),
}
SAMPLING_ROW: Final = np.dtype(
    {
        "names": [*_HEAD, "zero", *_LISTS],
        "formats": [*("<i4",) * len(_HEAD), ("<i4", 11), *_LISTS.values()],
        "offsets": [4 * i for i in range(len(_HEAD) + 1)]
        + [
            _HEAD_NBYTES + 4 * sum(count for _, count in list(_LISTS.values())[:i])
            for i in range(len(_LISTS))
        ],
        "itemsize": SAMPLING_ROW_NBYTES,
    }
)


def sampling_rows(sampling: U8) -> Records:
    """The sampling rows of all slots, as records over the same memory."""
    return sampling.view(SAMPLING_ROW)


def counts_tokens(state: Records) -> bool:
    """Whether a request's penalties look at what tokens there are."""
    repeats = state["repetition_penalty"] not in (0.0, 1.0)
    return bool(repeats or state["presence_penalty"] != 0 or state["frequency_penalty"] != 0)


def allowed_tokens(words: U32, vocab: int) -> Bools:
    """A mask's bits, one a token."""
    bits = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little")
    return bits[:vocab].astype(np.bool_)


def mask_words(vocab: int) -> int:
    """32-bit words of a row with a bit for each token."""
    return -(-vocab // MASK_WORD_BITS)


def initialize_sampling(
    rows: I32, slot: I32, repetition_penalty: F32, presence_penalty: F32, frequency_penalty: F32,
    min_tokens: I32, top_logprobs: I32, stop_ids: I32, bias_tokens: I32, bias: F32,
    bad_words: I32, recent: I32, mask: U32, state: U8, sampling: U8, token_counts: I32,
    output_counts: I32, token_mask: U32,
    *, capacity: int, vocab: int,
) -> None:  # fmt: skip
    """Writes each live row's sampling row, and clears the counts that penalties will read."""
    states, slots = state_rows(state), sampling_rows(sampling)
    words = mask_words(vocab)
    for row in range(live_rows(rows, capacity)):
        at = int(slot[row])
        penalties = np.zeros((), states.dtype)
        penalties["repetition_penalty"] = repetition_penalty[row]
        penalties["presence_penalty"] = presence_penalty[row]
        penalties["frequency_penalty"] = frequency_penalty[row]
        if counts_tokens(penalties):
            for counts in (token_counts, output_counts):
                if 0 <= at < len(counts) // vocab:
                    counts[at * vocab : (at + 1) * vocab] = 0
        if 0 <= at < len(states):
            for name in ("repetition_penalty", "presence_penalty", "frequency_penalty"):
                states[name][at] = penalties[name]
            states["min_tokens"][at] = min_tokens[row]
        own_mask = mask[words * row : words * (row + 1)]
        masked = 0 <= at < len(token_mask) // words and not allowed_tokens(own_mask, vocab).all()
        if masked:
            token_mask[at * words : (at + 1) * words] = own_mask
        if not 0 <= at < len(slots):
            continue
        given: dict[str, NDArray[Any]] = {
            "stop_ids": stop_ids[STOP_CAPACITY * row :][:STOP_CAPACITY],
            "bias_tokens": bias_tokens[BIAS_CAPACITY * row :][:BIAS_CAPACITY],
            "bias": bias[BIAS_CAPACITY * row :][:BIAS_CAPACITY],
            "bad_words": bad_words[BAD_WORD_CAPACITY * row :][:BAD_WORD_CAPACITY],
        }
        used = {
            "stop_ids": _ids_in(given["stop_ids"]),
            "bias_tokens": _ids_in(given["bias_tokens"]),
            "bad_words": _elements_of_sequences(given["bad_words"]),
        }
        used["bias"] = used["bias_tokens"]
        for name in (*_HEAD, "zero"):
            slots[name][at] = 0
        slots["top_logprobs"][at] = top_logprobs[row]
        slots["stops"][at] = used["stop_ids"]
        slots["biases"][at] = used["bias_tokens"]
        slots["bad_tokens"][at] = used["bad_words"]
        slots["masked"][at] = masked
        for name, count in used.items():
            slots[name][at, :count] = given[name][:count]
        if used["bad_words"]:
            slots["recent"][at] = recent[RECENT_CAPACITY * row :][:RECENT_CAPACITY]


def _ids_in(ids: I32) -> int:
    """How many come before the first negative one."""
    negative = np.flatnonzero(ids < 0)
    return int(negative[0]) if len(negative) else len(ids)


def _elements_of_sequences(words: I32) -> int:
    """Elements of the whole sequences, each a length and so many ids."""
    end = 0
    while end < len(words) and 0 < words[end] < len(words) - end:
        end += 1 + int(words[end])
    return end


def count_sampled(
    rows: I32, slot: I32, generation: I32, sampled: I32 | None, tokens: I32, state: U8,
    sampling: U8, token_counts: I32, output_counts: I32,
    *, capacity: int, vocab: int,
) -> None:  # fmt: skip
    """Adds each running lane's sampled token to what its penalties and bad words look at."""
    states, slots = state_rows(state), sampling_rows(sampling)
    for lane in range(live_rows(rows, capacity)):
        at, token = int(slot[lane]), int(tokens[lane])
        if not 0 <= at < len(states) or (sampled is not None and not sampled[lane]):
            continue
        held = states[at]
        runs = held["generation"] == generation[lane] and held["finished"] == DeviceFinish.RUNNING
        if not runs or not 0 <= token < vocab:
            continue
        if counts_tokens(held):
            for counts in (token_counts, output_counts):
                if at < len(counts) // vocab:
                    # Counts wrap, as the library's do.
                    counts.view(np.uint32)[at * vocab + token] += np.uint32(1)
        if at < len(slots) and slots["bad_tokens"][at] > 0:
            recent = slots["recent"][at]
            recent[:-1] = recent[1:].copy()
            recent[-1] = token
