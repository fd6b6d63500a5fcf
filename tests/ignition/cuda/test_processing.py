"""Sampling from processed logits on the CUDA target, interpreted, against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helios.kernels.catalogue import BIAS_CAPACITY
from helios.runtime.reference.sampling_rows import SAMPLING_ROW
from tests.ignition.cuda.interpreted import WITHOUT_TRITON
from tests.ignition.cuda.sampled import check, run_small
from tests.native import request_cases, sampling
from tests.native.sampling import mask_of, sampling_row
from tests.native.states import STATE, i32, states

pytest.importorskip("triton", reason=WITHOUT_TRITON)


@pytest.mark.parametrize("grammar", [False, True])
@pytest.mark.parametrize(
    "parameters",
    [
        {"temperature": 0.0},
        {"temperature": 0.7},
        {"temperature": 1.5, "top_k": 3},
        {"temperature": 0.8, "top_k": 60, "top_p": 0.9, "min_p": 0.01},
    ],
    ids=str,
)
def test_everything_at_once(parameters: dict[str, float], grammar: bool) -> None:
    rng = np.random.default_rng(int(grammar))
    vocab = 333 if grammar else 416
    check(
        sampling.sample_processed(
            rng, capacity=4, vocab=vocab, stride=vocab + 3, grammar=grammar, **parameters
        )
    )


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_rows_hold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    vocab = int(rng.choice([1, 5, 31, 64, 300]))
    case = sampling.sample_processed(
        rng, capacity=5, vocab=vocab, grammar=seed % 2 == 0, temperature=float(seed % 3)
    )
    rows = case.operands["sampling"].view(SAMPLING_ROW).reshape(-1)
    for name in ("top_logprobs", "stops", "biases", "bad_tokens"):
        rows[name] = rng.choice([-(2**31), -1, 0, 3, 2**31 - 1], 5)
    rows["bias_tokens"][:, ::2] = rng.integers(-5, vocab + 5, BIAS_CAPACITY // 2)
    rows["bad_words"][:, :30] = rng.integers(-2, 9, 30)
    case.operands["slot"][:2] = [-1, 5]
    check(case)


@pytest.mark.parametrize(
    "short", ["state", "sampling", "token_counts", "output_counts", "token_mask"]
)
def test_each_buffer_has_its_own_number_of_slots(short: str) -> None:
    case = sampling.sample_processed(np.random.default_rng(4), capacity=3, vocab=40)
    case.operands["sampling"].view(SAMPLING_ROW)["masked"] = 1
    check(case.with_operands(**{short: case.operands[short][:1].copy()}))


def test_one_thing_at_a_time() -> None:
    """Each lane asks for one thing, or for one that turns out to be nothing."""
    vocab = 300
    rng = np.random.default_rng(7)
    asked: list[dict[str, Any]] = [
        {},
        {"bias": {5: 30.0, 299: 2.0}},
        {"sequences": [[7], [9, 21]], "recent": [4, 9]},
        {"stop_ids": [3, 4]},
        {"masked": True},
        {"top_logprobs": 20},
        *[{}] * 6,
    ]
    lanes = len(asked)
    state = states(lanes)
    state["eos_ids"][:, 0] = 11
    for lane, name, value in (
        (6, "repetition_penalty", 1.4), (7, "presence_penalty", 0.5),
        (8, "frequency_penalty", -0.3), (9, "repetition_penalty", 1.0), (10, "min_tokens", 1),
    ):  # fmt: skip
        state[name][lane] = value
    case = sampling.plain_case(
        rng.standard_normal((lanes, vocab), np.float32) * 3, state,
        [sampling_row(**row) for row in asked], vocab=vocab,
        counts=rng.poisson(0.8, (lanes, vocab)), outputs=rng.poisson(0.5, (lanes, vocab)),
        masks=np.stack([mask_of(rng.random(vocab) < 0.5) for _ in asked]),
    )  # fmt: skip
    best = case.operands["logits"].argmax(axis=1)
    state["eos_ids"][10, 0] = best[10]
    grammar = np.ones((lanes, vocab), np.bool_)
    grammar[11, best[11]] = False  # the one token that greedy sampling would take
    masks = np.stack([mask_of(row) for row in grammar])
    for temperature in (0.0, 1.2):
        state["temperature"] = temperature
        masked = case.with_operands(grammar_mask=masks, state=sampling_state(state))
        check(masked)


def sampling_state(state: Any) -> Any:
    return state.view(np.uint8).reshape(len(state), -1).copy()


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_where_nothing_is_left_words_and_least_length_give_way(temperature: float) -> None:
    vocab = 150
    state = states(4)
    state["temperature"] = temperature
    state["min_tokens"] = 5
    state["eos_ids"][0, 0] = 140
    only = np.arange(vocab) == 140
    case = sampling.plain_case(
        np.random.default_rng(1).standard_normal((4, vocab), np.float32), state,
        [
            sampling_row(masked=True),
            sampling_row(masked=True, sequences=[[140]]),
            sampling_row(masked=True, stop_ids=[140], bias={140: -100.0}),
            sampling_row(masked=True, sequences=[[140]]),
        ],
        vocab=vocab, masks=np.stack([mask_of(only)] * 3 + [mask_of(np.zeros(vocab, np.bool_))]),
    )  # fmt: skip
    got = check(case)
    assert got["tokens"].tolist() == [140, 140, 140, 0]


def test_biases_of_one_token_are_added_in_their_order() -> None:
    vocab = 200
    rows = [sampling_row(bias=dict.fromkeys(range(BIAS_CAPACITY), 0.0))]
    rng = np.random.default_rng(2)
    rows[0]["bias_tokens"] = rng.choice([3, 77, 199], BIAS_CAPACITY)
    rows[0]["bias"] = rng.standard_normal(BIAS_CAPACITY) * 10.0 ** rng.integers(-3, 4, 512)
    case = sampling.plain_case(
        rng.standard_normal((1, vocab), np.float32), states(1), rows, vocab=vocab
    )
    check(case)


def test_a_lane_that_asks_for_nothing_is_sampled_as_sample_does() -> None:
    plain = request_cases.sample(
        np.random.default_rng(3), rows=6, capacity=6, vocab=500, stride=510, temperature=0.8,
        top_p=0.95,
    )  # fmt: skip
    state = plain.operands["state"].view(STATE).reshape(-1)
    state["temperature"][::3] = 0
    case = sampling.plain_case(plain.operands["logits"], state, [sampling_row()] * 6, vocab=500)
    everything = np.full((6, 16), 2**32 - 1, np.uint32)
    everything[:, 15] = 0x000FFFFF  # bits past the vocabulary exclude nothing
    expected = run_small(plain)
    for asked in (case, case.with_operands(grammar_mask=everything)):
        got = run_small(asked)
        assert got["tokens"].tolist() == expected["tokens"].tolist()
        assert got["logprobs"].tobytes() == expected["logprobs"].tobytes()
        # Nobody asked for alternatives: nothing was written.
        assert (got["top_tokens"] == -5).all()
        assert (got["top_logprobs"] == 5).all()


def test_alternatives_of_equal_logits_are_in_id_order_and_no_more_than_there_are() -> None:
    case = sampling.plain_case(
        np.array([[0, 1, 1, np.nan, 1], [0, -0.0, 0, 0, 0], [np.nan] * 5], np.float32), states(3),
        [sampling_row(top_logprobs=n) for n in (3, 20, 4)], vocab=5,
    )  # fmt: skip
    tokens = check(case)["top_tokens"]
    assert tokens[0].tolist() == [1, 2, 4] + [-1] * 17
    assert tokens[1].tolist() == [0, 1, 2, 3, 4] + [-1] * 15
    assert tokens[2].tolist() == [-1] * 20


def test_rows_go_to_their_lanes() -> None:
    case = sampling.sample_processed(
        np.random.default_rng(4), capacity=4, vocab=200, temperature=0.9, grammar=True
    )
    check(case.with_operands(lane=i32(2, 0, 9, -1), rows=i32(4), query_length=i32(3, 1, 8, 2)))
