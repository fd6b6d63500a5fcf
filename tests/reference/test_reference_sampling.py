"""Sampling: each parameter's kept set by brute force, the draws' distribution, row selection."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.runtime.reference.philox import uniform
from helios.runtime.reference.sampling import (
    kept_tokens,
    log_probability,
    pick,
    sample,
    select_attending,
    select_last,
)
from helios.runtime.reference.state import REQUEST_STATE

logit_rows = st.lists(
    st.sampled_from([-3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 1.5, 3.0]), min_size=1, max_size=12
).map(lambda values: np.array(values, np.float32))


def kept_by_definition(scaled: np.ndarray, top_k: int, top_p: float, min_p: float) -> set[int]:
    """The kept set, one token at a time, in the words of docs/kernels.md."""
    order = sorted(range(len(scaled)), key=lambda token: (-scaled[token], token))
    if top_k > 0:
        order = order[:top_k]
    total = math.fsum(math.exp(scaled[token]) for token in order)
    prefix: list[int] = []
    reached = 0.0
    for token in order:
        prefix.append(token)
        reached += math.exp(scaled[token]) / total
        if reached >= top_p:
            break
    largest = math.exp(max(scaled))
    return {token for token in prefix if math.exp(scaled[token]) >= min_p * largest}


@settings(max_examples=300, deadline=None)
@given(
    scaled=logit_rows,
    top_k=st.integers(0, 13),
    # None of these is a sum of the few probabilities that the rows above can have.
    top_p=st.sampled_from([0.013, 0.27, 0.513, 0.77, 0.931, 1.0]),
    min_p=st.sampled_from([0.0, 0.011, 0.17, 0.53, 1.0]),
)
def test_kept_set(scaled: np.ndarray, top_k: int, top_p: float, min_p: float) -> None:
    weight = np.exp(scaled - scaled.max()).astype(np.float64)
    kept = set(np.flatnonzero(kept_tokens(scaled, weight, top_k, top_p, min_p)).tolist())
    expected = kept_by_definition(scaled, top_k, top_p, min_p)
    if top_p == 1.0:  # the definition's running sum may stop short of 1 by rounding
        expected = kept_by_definition(scaled, top_k, 2.0, min_p)
    assert kept == expected


def test_top_k_breaks_ties_by_token_id() -> None:
    scaled = np.array([1, 2, 1, 2, 1], np.float32)
    weight = np.exp(scaled - 2).astype(np.float64)
    assert kept_tokens(scaled, weight, 3, 1.0, 0.0).tolist() == [True, True, False, True, False]


@settings(max_examples=200, deadline=None)
@given(logits=logit_rows, draw=st.floats(0, 1, exclude_max=True), top_k=st.integers(0, 4))
def test_pick_walks_the_kept_tokens_in_id_order(
    logits: np.ndarray, draw: float, top_k: int
) -> None:
    token = pick(logits, temperature=0.7, top_k=top_k, top_p=1.0, min_p=0.0, draw=draw)
    scaled = logits / np.float32(0.7)
    kept = sorted(kept_by_definition(scaled, top_k, 2.0, 0.0))
    assert token in kept
    mass = {t: math.exp(scaled[t]) for t in kept}
    total = math.fsum(mass.values())
    below = math.fsum(mass[t] for t in kept if t < token) / total
    assert below - 1e-6 <= draw <= below + mass[token] / total + 1e-6


def test_greedy_takes_the_lowest_of_equal_maxima() -> None:
    logits = np.array([0, 5, 5, 1], np.float32)
    for temperature in (0.0, -1.0):
        assert pick(logits, temperature=temperature, top_k=0, top_p=1, min_p=0, draw=0.99) == 1


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [(1.0, 0, 1.0, 0.0), (0.6, 0, 1.0, 0.0), (1.5, 5, 1.0, 0.0), (1.0, 0, 0.8, 0.0),
     (1.0, 0, 1.0, 0.2), (1.3, 6, 0.9, 0.1)],
)  # fmt: skip
def test_draws_follow_the_distribution(
    temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    """Chi-squared over 4,000 positions of one seed. The bound is about five standard deviations
    above the mean of the statistic, so a wrong distribution fails and this seed passes."""
    logits = np.array([0.3, 1.1, -0.4, 2.0, 0.9, -1.2, 1.7, 0.0, 0.6, -0.2], np.float32)
    draws = 4000
    counts = np.zeros(len(logits))
    for position in range(draws):
        token = pick(
            logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
            draw=uniform(123, 456, position),
        )  # fmt: skip
        counts[token] += 1
    scaled = logits / np.float32(temperature)
    kept = sorted(kept_by_definition(scaled, top_k, top_p, min_p))
    assert counts.sum() == counts[kept].sum()
    mass = np.exp(scaled[kept].astype(np.float64))
    expected = draws * mass / mass.sum()
    statistic = float(((counts[kept] - expected) ** 2 / expected).sum())
    freedom = len(kept) - 1
    assert statistic < freedom + 5 * math.sqrt(2 * freedom)


@given(logits=logit_rows)
def test_log_probabilities_are_a_distribution_of_the_raw_logits(logits: np.ndarray) -> None:
    found = [log_probability(logits, token) for token in range(len(logits))]
    assert math.isclose(math.fsum(math.exp(value) for value in found), 1, rel_tol=1e-9)
    for token in range(len(logits)):
        assert math.isclose(found[token] - found[0], logits[token] - logits[0], abs_tol=1e-6)


def request_states(count: int) -> np.ndarray:
    return np.zeros(count, REQUEST_STATE)


def test_sample_reads_parameters_of_the_lanes_slot() -> None:
    states = request_states(4)
    states[3]["temperature"] = states[3]["top_p"] = 1.0
    states[3]["seed_lo"], states[3]["seed_hi"], states[3]["consumed"] = 9, 8, 20
    stride, vocab = 6, 5
    logits = np.zeros((2, stride), np.float32)
    logits[:, 5] = 50  # past the vocabulary: never chosen
    logits[0, 2] = 4
    tokens, logprobs = np.full(3, -7, np.int32), np.zeros(3, np.float32)
    # Row 0 is lane 2 (slot 1, greedy), row 1 is lane 0 (slot 3, seeded).
    sample(
        np.array([2], np.int32), np.array([2, 0, 9], np.int32), np.array([3, 2, 1], np.int32),
        np.array([5, 1, 1], np.int32), states.view(np.uint8), logits.reshape(-1), tokens, logprobs,
        capacity=3, vocab=vocab, stride=stride,
    )  # fmt: skip
    assert tokens[2] == 2
    assert math.isclose(logprobs[2], 4 - math.log(4 + math.exp(4)), rel_tol=1e-6)
    assert tokens[0] == int(uniform(9, 8, 25) * vocab)  # all five are equally likely
    assert math.isclose(logprobs[0], -math.log(vocab), rel_tol=1e-6)
    assert tokens[1] == -7  # no row sampled for lane 1


def test_sample_of_a_lane_out_of_range_writes_nothing() -> None:
    tokens, logprobs = np.full(1, -7, np.int32), np.zeros(1, np.float32)
    for lane in (-1, 1):
        sample(
            np.array([1], np.int32), np.array([lane], np.int32), np.array([0], np.int32), None,
            request_states(1).view(np.uint8), np.zeros(3, np.float32), tokens, logprobs,
            capacity=1, vocab=3, stride=3,
        )  # fmt: skip
    assert tokens.tolist() == [-7]


def test_select_last_compacts_sampling_lanes() -> None:
    lanes, packed, width = 4, 10, 3
    x = np.arange(packed * width, dtype=np.float32)
    selected_rows, selected_lane = np.zeros(1, np.int32), np.full(lanes, -5, np.int32)
    out = np.full(lanes * width, -5, np.float32)
    select_last(
        np.array([3], np.int32), np.array([2, 3, 1, 4], np.int32), np.array([1, 0, 1, 1], np.int32),
        x, selected_rows, selected_lane, out, capacity=lanes, packed_capacity=packed, width=width,
    )  # fmt: skip
    assert selected_rows[0] == 2
    assert selected_lane.tolist() == [0, 2, -5, -5]
    assert out.reshape(lanes, width)[:2].tolist() == [[3, 4, 5], [15, 16, 17]]
    assert (out[2 * width :] == -5).all()


def test_select_last_skips_lanes_without_rows() -> None:
    selected_rows, selected_lane = np.zeros(1, np.int32), np.zeros(3, np.int32)
    out = np.zeros(3, np.float32)
    select_last(
        np.array([3], np.int32), np.array([2, 0, 3], np.int32), np.ones(3, np.int32),
        np.arange(4, dtype=np.float32), selected_rows, selected_lane, out,
        capacity=3, packed_capacity=4, width=1,
    )  # fmt: skip
    # Lane 1 has no rows; lane 2's would end past the packed rows.
    assert selected_rows[0] == 1
    assert out[0] == 1


def test_select_attending_also_takes_queries_and_places() -> None:
    lanes, packed, width, elements = 4, 9, 3, 2
    x, queries = np.arange(packed * width, dtype="f4"), np.arange(packed * elements, dtype="f4")
    places = np.arange(packed, dtype=np.int32)
    selected_rows, selected_lane = np.zeros(1, np.int32), np.full(lanes, -5, np.int32)
    out, out_queries = np.full(lanes * width, -5, "f4"), np.full(lanes * elements, -5, "f4")
    out_positions, out_slot = np.full(lanes, -5, np.int32), np.full(lanes, -5, np.int32)
    select_attending(
        np.array([3], np.int32), np.array([2, 3, 1, 4], np.int32), np.array([1, 0, 1, 1], np.int32),
        x, queries, 100 + places, 50 - places, selected_rows, selected_lane, out, out_queries,
        out_positions, out_slot,
        capacity=lanes, packed_capacity=packed, width=width, elements=elements, dtype=9,
    )  # fmt: skip
    assert selected_rows[0] == 2
    assert selected_lane.tolist() == [0, 2, -5, -5]
    assert out.tolist() == [3, 4, 5, 15, 16, 17, *[-5] * 6]
    assert out_queries.tolist() == [2, 3, 10, 11, *[-5] * 4]
    assert out_positions.tolist() == [101, 105, -5, -5]
    assert out_slot.tolist() == [49, 45, -5, -5]


def test_not_a_number_never_wins() -> None:
    logits = np.array([np.nan, -1, 2, np.nan], np.float32)
    assert pick(logits, temperature=0, top_k=0, top_p=1, min_p=0, draw=0.5) == 2
