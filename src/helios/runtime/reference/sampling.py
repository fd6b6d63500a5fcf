"""Reference kernels at the end of a program: which rows sample, the sampling itself, and scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from helios.kernels.catalogue import TOP_CAPACITY
from helios.runtime.reference.arrays import F32, F64, I32, U8, Bools, gather, live_rows, rows_of
from helios.runtime.reference.philox import uniform
from helios.runtime.reference.state import state_rows


def select_last(
    rows: I32, query_length: I32, sample: I32, x: F32, selected_rows: I32, selected_lane: I32,
    out: F32,
    *, capacity: int, packed_capacity: int, width: int,
) -> None:  # fmt: skip
    """Compacts the last packed row of each lane that samples, in lane order."""
    lanes, last = _sampling_lanes(rows, query_length, sample, capacity, packed_capacity)
    selected_rows[0] = len(lanes)
    selected_lane[: len(lanes)] = lanes
    rows_of(out, len(lanes), width)[:] = rows_of(x, packed_capacity, width)[last]


def select_attending(
    rows: I32, query_length: I32, sample: I32, x: F32, queries: F32, positions: I32, slot: I32,
    selected_rows: I32, selected_lane: I32, out: F32, out_queries: F32, out_positions: I32,
    out_slot: I32,
    *, capacity: int, packed_capacity: int, width: int, elements: int, dtype: int,
) -> None:  # fmt: skip
    """As `select_last`, with what the rows attend by."""
    select_last(
        rows, query_length, sample, x, selected_rows, selected_lane, out,
        capacity=capacity, packed_capacity=packed_capacity, width=width,
    )  # fmt: skip
    lanes, last = _sampling_lanes(rows, query_length, sample, capacity, packed_capacity)
    attending = rows_of(queries, packed_capacity, elements)
    rows_of(out_queries, len(lanes), elements)[:] = attending[last]
    out_positions[: len(lanes)] = positions[last]
    out_slot[: len(lanes)] = slot[last]


def _sampling_lanes(
    rows: I32, query_length: I32, sample: I32, capacity: int, packed_capacity: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The lanes that sample, and the last packed row of each."""
    live = live_rows(rows, capacity)
    lengths = np.maximum(query_length[:live], 0)
    ends = np.cumsum(lengths, dtype=np.int64)
    lanes = np.flatnonzero((sample[:live] != 0) & (lengths > 0) & (ends <= packed_capacity))
    return lanes, ends[lanes] - 1


def sample(
    rows: I32, lane: I32 | None, slot: I32, query_length: I32 | None, state: U8, logits: F32,
    tokens: I32, logprobs: F32,
    *, capacity: int, vocab: int, stride: int,
) -> None:  # fmt: skip
    """Picks a token for each live row's lane, with the log-probability of the raw logits."""
    live = live_rows(rows, capacity)
    scores = rows_of(logits, live, stride)[:, :vocab]
    slots = state_rows(state)
    for row in range(live):
        target = row if lane is None else int(lane[row])
        if not 0 <= target < capacity:
            continue
        parameters = gather(slots, slot[target : target + 1])[0]
        consumed = 1 if query_length is None else int(query_length[target])
        token = pick(
            scores[row],
            temperature=float(parameters["temperature"]),
            top_k=int(parameters["top_k"]),
            top_p=float(parameters["top_p"]),
            min_p=float(parameters["min_p"]),
            draw=uniform(
                int(parameters["seed_lo"]),
                int(parameters["seed_hi"]),
                int(parameters["consumed"]) + consumed,
            ),
        )
        tokens[target] = token
        logprobs[target] = log_probability(scores[row], token)


def slice_rows(rows: I32, out: I32, *, capacity: int, start: int, limit: int) -> None:
    """How many live rows there are from `start` on, at most `limit`."""
    out[0] = max(0, min(live_rows(rows, capacity) - start, limit))


def score(
    rows: I32, target: I32, logits: F32, out: F32, *, capacity: int, vocab: int, stride: int
) -> None:
    """Log-probability of each live row's target; nan where it is no token."""
    live = live_rows(rows, capacity)
    scores = rows_of(logits, live, stride)[:, :vocab]
    for row in range(live):
        known = 0 <= target[row] < vocab
        out[row] = log_probability(scores[row], int(target[row])) if known else np.nan


def score_ranked(
    rows: I32, target: I32, wanted: I32, logits: F32, out: F32, rank: I32, top_tokens: I32,
    top_logprobs: F32,
    *, capacity: int, vocab: int, stride: int,
) -> None:  # fmt: skip
    """As `score`, with each target's place in the order, and the likeliest tokens of rows that
    want them."""
    score(rows, target, logits, out, capacity=capacity, vocab=vocab, stride=stride)
    live = live_rows(rows, capacity)
    scores = rows_of(logits, live, stride)[:, :vocab]
    for row in range(live):
        token = int(target[row])
        known = 0 <= token < vocab
        rank[row] = _rank(scores[row], token) if known else 0
        count = min(max(int(wanted[row]), 0), TOP_CAPACITY)
        if count:
            places = slice(row * TOP_CAPACITY, (row + 1) * TOP_CAPACITY)
            report_likeliest(
                scores[row], count if known else 0, top_tokens[places], top_logprobs[places]
            )


def report_likeliest(raw: F32, wanted: int, tokens: I32, logprobs: F32) -> None:
    """The likeliest tokens, ties by id, then −1 and 0."""
    tokens[:], logprobs[:] = -1, 0
    known = np.flatnonzero(~np.isnan(raw))
    order = known[np.argsort(-raw[known], kind="stable")][:wanted]
    tokens[: len(order)] = order
    logprobs[: len(order)] = [log_probability(raw, int(token)) for token in order]


def _rank(logits: F32, token: int) -> int:
    """The place of a token in the order, from 1."""
    own = logits[token]
    larger = np.count_nonzero(logits > own)
    return 1 + int(larger) + int(np.count_nonzero(logits[:token] == own))


def pick(
    logits: F32, *, temperature: float, top_k: int, top_p: float, min_p: float, draw: float
) -> int:
    """The token that `draw` in [0, 1) selects; the largest logit where `temperature` ≤ 0."""
    best = int(np.argmax(np.where(np.isnan(logits), -np.inf, logits)))
    if temperature <= 0:
        return best
    scaled: F32 = logits / np.float32(temperature)
    with np.errstate(invalid="ignore"):  # where every logit is -infinity
        weight: F64 = np.exp(scaled - scaled.max()).astype(np.float64)
    weight[~kept_tokens(logits, weight, top_k, top_p, min_p)] = 0
    running = np.cumsum(weight)
    if not running[-1] > 0:
        return best
    # With draw < 1 the threshold is below the total, except where the product rounds up to it.
    chosen = int(np.searchsorted(running, draw * running[-1], side="right"))
    return min(chosen, int(np.flatnonzero(weight)[-1]))


def kept_tokens(logits: F32, weight: F64, top_k: int, top_p: float, min_p: float) -> Bools:
    """Which tokens top-k, then top-p, then min-p leave. `weight` is proportional to the
    probabilities at the request's temperature."""
    kept = np.ones(len(logits), np.bool_)
    if 0 < top_k < len(logits) or top_p < 1:
        order = np.argsort(-logits, kind="stable")
        if 0 < top_k < len(logits):
            order = order[:top_k]
        if top_p < 1:
            reached = np.cumsum(weight[order])
            order = order[: int(np.searchsorted(reached, top_p * reached[-1], side="left")) + 1]
        kept[:] = False
        kept[order] = True
    if min_p > 0:
        kept &= weight >= min_p * weight.max()
    return kept


def log_probability(logits: F32, token: int) -> float:
    """Log-softmax of raw logits at a token, in nats."""
    wide = logits.astype(np.float64)
    top = wide.max()
    return float(wide[token] - top - np.log(np.exp(wide - top).sum()))
