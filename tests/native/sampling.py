"""Random launches of the kernels that process logits, with everything in use.

Row r of a launch is lane r, whose slot is r. `cases.every_kernel` takes these in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helios.kernels.catalogue import (
    BAD_WORD_CAPACITY,
    BIAS_CAPACITY,
    RECENT_CAPACITY,
    STOP_CAPACITY,
    TOP_CAPACITY,
)
from helios.runtime.reference.sampling_rows import SAMPLING_ROW
from tests.native.launches import Array, Case
from tests.native.states import i32, state_bytes, states


def mask_of(allowed: Array) -> NDArray[np.uint32]:
    """Words of `allowed`, a bit a token; the bits past it are set."""
    words = -(-len(allowed) // 32)
    padded = np.ones(32 * words, np.bool_)
    padded[: len(allowed)] = allowed
    return np.packbits(padded, bitorder="little").view("<u4")


def bad_words(sequences: list[list[int]]) -> list[int]:
    """As a row holds them: each its length and its ids."""
    return [element for sequence in sequences for element in (len(sequence), *sequence)]


def sampling_row(
    *,
    top_logprobs: int = 0,
    stop_ids: list[int] | None = None,
    bias: dict[int, float] | None = None,
    sequences: list[list[int]] | None = None,
    recent: list[int] | None = None,
    masked: bool = False,
) -> Array:
    """A sampling row of what is given."""
    row = np.zeros((), SAMPLING_ROW)
    row["top_logprobs"], row["masked"] = top_logprobs, masked
    words = bad_words(sequences or [])
    row["stops"], row["biases"] = len(stop_ids or []), len(bias or {})
    row["bad_tokens"] = len(words)
    row["stop_ids"][: len(stop_ids or [])] = stop_ids or []
    row["bias_tokens"][: len(bias or {})] = list(bias or {})
    row["bias"][: len(bias or {})] = list((bias or {}).values())
    row["bad_words"][: len(words)] = words
    tail = (recent or [])[-RECENT_CAPACITY:]
    row["recent"] = [-1] * (RECENT_CAPACITY - len(tail)) + tail
    return row


def row_bytes(rows: list[Array]) -> NDArray[np.uint8]:
    """Sampling rows as an operand."""
    return np.stack(rows).view(np.uint8).reshape(len(rows), -1)


def plain_case(
    logits: NDArray[np.float32],
    state: Array,
    rows: list[Array],
    *,
    vocab: int,
    counts: Array | None = None,
    outputs: Array | None = None,
    masks: Array | None = None,
) -> Case:
    """A `sample_processed` launch of given logits `f32 [lanes, stride]`, states and rows."""
    lanes, stride = logits.shape
    words = -(-vocab // 32)
    nothing = np.zeros((lanes, vocab), np.int32)
    operands: dict[str, Array] = {
        "rows": i32(lanes),
        "slot": np.arange(lanes, dtype=np.int32),
        "state": state_bytes(state),
        "sampling": row_bytes(rows),
        "token_counts": nothing if counts is None else counts.astype(np.int32),
        "output_counts": nothing if outputs is None else outputs.astype(np.int32),
        "token_mask": np.full((lanes, words), 2**32 - 1, np.uint32) if masks is None else masks,
        "logits": logits,
        "tokens": np.full(lanes, -5, np.int32),
        "logprobs": np.full(lanes, 5, np.float32),
        "top_tokens": np.full((lanes, TOP_CAPACITY), -5, np.int32),
        "top_logprobs": np.full((lanes, TOP_CAPACITY), 5, np.float32),
    }
    attributes = {"capacity": lanes, "vocab": vocab, "stride": stride}
    return Case("sample_processed", operands, attributes)


def sample_processed(
    rng: np.random.Generator,
    *,
    capacity: int,
    vocab: int,
    stride: int | None = None,
    grammar: bool = False,
    **parameters: float,
) -> Case:
    """Every lane with bias, penalties, a mask, bad words, a least length and alternatives."""
    stride = vocab if stride is None else stride
    state = states(capacity)
    state["seed"] = rng.integers(0, 2**63, capacity)
    state["repetition_penalty"] = rng.uniform(0.7, 1.6, capacity)
    state["presence_penalty"] = rng.uniform(-1, 1, capacity)
    state["frequency_penalty"] = rng.uniform(-1, 1, capacity)
    state["min_tokens"] = rng.integers(0, 3, capacity)
    state["emitted"] = rng.integers(0, 3, capacity)
    state["eos_ids"][:, :2] = rng.integers(0, vocab, (capacity, 2))
    for name, value in parameters.items():
        state[name] = value
    outputs = rng.poisson(0.1, (capacity, vocab))
    rows, masks = [], []
    for _ in range(capacity):
        ids = rng.integers(0, vocab, 40).tolist()
        recent = ids[:35]
        sequences = [ids[36:37], [*recent[-2:], ids[37]], [*recent[-4:-2], ids[38]], recent[-33:]]
        rows.append(
            sampling_row(
                top_logprobs=int(rng.integers(0, TOP_CAPACITY + 1)),
                stop_ids=rng.integers(0, vocab, 5).tolist(),
                bias={int(i): float(rng.uniform(-5, 5)) for i in set(ids[:20])},
                sequences=sequences,
                recent=recent,
                masked=bool(rng.integers(0, 2)),
            )
        )
        masks.append(mask_of(rng.random(vocab) < 0.7))
    case = plain_case(
        rng.standard_normal((capacity, stride), np.float32) * 3, state, rows, vocab=vocab,
        counts=outputs + rng.poisson(0.1, (capacity, vocab)), outputs=outputs,
        masks=np.stack(masks),
    )  # fmt: skip
    if grammar:
        case = case.with_operands(
            grammar_mask=np.stack([mask_of(rng.random(vocab) < 0.5) for _ in range(capacity)])
        )
    return case


def initialize_sampling(rng: np.random.Generator, *, capacity: int, vocab: int) -> Case:
    """Lanes with and without each thing; slots in another order."""
    words = -(-vocab // 32)
    operands: dict[str, Array] = {
        "rows": i32(capacity),
        "slot": rng.permutation(capacity).astype(np.int32),
        "repetition_penalty": rng.choice([0.0, 1.0, 1.3], capacity).astype(np.float32),
        "presence_penalty": rng.choice([0.0, 0.5], capacity).astype(np.float32),
        "frequency_penalty": rng.choice([0.0, -0.5], capacity).astype(np.float32),
        "min_tokens": rng.integers(0, 9, capacity).astype(np.int32),
        "top_logprobs": rng.integers(0, 21, capacity).astype(np.int32),
        "stop_ids": _lists(rng, capacity, STOP_CAPACITY, vocab),
        "bias_tokens": _lists(rng, capacity, BIAS_CAPACITY, vocab),
        "bias": rng.standard_normal((capacity, BIAS_CAPACITY), np.float32),
        "bad_words": np.zeros((capacity, BAD_WORD_CAPACITY), np.int32),
        "recent": rng.integers(-1, vocab, (capacity, RECENT_CAPACITY)).astype(np.int32),
        "mask": np.stack([
            mask_of(rng.random(vocab) < rng.choice([0.5, 2.0])) for _ in range(capacity)
        ]),
        "state": np.full((capacity, 128), 7, np.uint8),
        "sampling": np.full((capacity, SAMPLING_ROW.itemsize), 7, np.uint8),
        "token_counts": np.full((capacity, vocab), 7, np.int32),
        "output_counts": np.full((capacity, vocab), 7, np.int32),
        "token_mask": np.full((capacity, words), 7, np.uint32),
    }  # fmt: skip
    for row in operands["bad_words"]:
        sequences = [
            rng.integers(0, vocab, rng.integers(1, 5)).tolist() for _ in range(rng.integers(0, 9))
        ]
        elements = bad_words(sequences)
        row[: len(elements)] = elements
    return Case("initialize_sampling", operands, {"capacity": capacity, "vocab": vocab})


def _lists(rng: np.random.Generator, rows: int, columns: int, vocab: int) -> Array:
    """Ids, then −1 to the end, except where a row is full."""
    lists = rng.integers(0, vocab, (rows, columns)).astype(np.int32)
    for row, count in zip(lists, rng.choice([0, 3, columns], rows), strict=True):
        row[count:] = -1
    return lists


def count_sampled(rng: np.random.Generator, *, capacity: int, vocab: int) -> Case:
    """Running lanes with penalties, bad words, both or neither."""
    state = states(capacity)
    state["presence_penalty"] = rng.choice([0.0, 0.5], capacity)
    state["repetition_penalty"][0] = 1.5
    rows = [
        sampling_row(
            sequences=[[3, 4]] if index % 2 == 0 else [],
            recent=rng.integers(0, vocab, 40).tolist(),
        )
        for index in range(capacity)
    ]
    operands: dict[str, Array] = {
        "rows": i32(capacity),
        "slot": np.arange(capacity, dtype=np.int32),
        "generation": np.arange(capacity, dtype=np.int32) + 1,
        "sampled": np.ones(capacity, np.int32),
        "tokens": rng.integers(0, vocab, capacity).astype(np.int32),
        "state": state_bytes(state),
        "sampling": row_bytes(rows),
        "token_counts": rng.integers(0, 5, (capacity, vocab)).astype(np.int32),
        "output_counts": rng.integers(0, 5, (capacity, vocab)).astype(np.int32),
    }
    return Case("count_sampled", operands, {"capacity": capacity, "vocab": vocab})


def every_kernel() -> dict[str, Callable[[np.random.Generator], Case]]:
    """Named launches for the tests of all kernels."""
    sampled: Callable[..., Any] = partial(sample_processed, capacity=3, vocab=1043)
    return {
        "sample_processed": partial(sampled, temperature=0.0),
        "sample_processed_drawn": partial(
            sampled, stride=1050, temperature=0.8, top_k=60, top_p=0.9, min_p=0.01, grammar=True
        ),
        "initialize_sampling": partial(initialize_sampling, capacity=4, vocab=333),
        "count_sampled": partial(count_sampled, capacity=4, vocab=333),
    }
