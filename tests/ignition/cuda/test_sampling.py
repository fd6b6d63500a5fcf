"""Sampling on the CUDA target, interpreted, against the reference: greedy lanes, draws, scores.

Blocks are small (`small_sampling`), so that a vocabulary of hundreds has many of each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helios.errors import ContractError
from tests.ignition.cuda.interpreted import WITHOUT_TRITON, lowered, run
from tests.ignition.cuda.sampled import check, run_small
from tests.native import request_cases
from tests.native.reference import by_reference
from tests.native.sampled_lanes import PARAMETERS, every_parameter
from tests.native.states import STATE, i32
from tests.native.test_sampling import uniform

pytest.importorskip("triton", reason=WITHOUT_TRITON)


@pytest.mark.parametrize(("vocab", "seed"), [(1, 0), (17, 0), (64, 0), (600, 0), (600, 1)])
def test_samples(vocab: int, seed: int) -> None:
    check(every_parameter(seed, vocab))


@pytest.mark.parametrize("vocab", [64, 400])
@pytest.mark.parametrize("most", [1, 100])
def test_ties_go_to_lower_ids(vocab: int, most: int) -> None:
    """Among the largest too, where `most` cuts them off."""
    case = every_parameter(5, vocab)
    case.operands["logits"][:] = np.minimum(np.round(case.operands["logits"]), most)
    check(case)


@pytest.mark.parametrize("temperature", [0.02, 0.5, 30.0])
def test_hot_and_cold(temperature: float) -> None:
    check(every_parameter(6, 400, temperature=temperature))


def test_zeros_of_either_sign_are_equal() -> None:
    case = every_parameter(7, 300)
    signs = np.random.default_rng(7).choice([-0.0, 0.0, -1.0], case.operands["logits"].shape)
    check(case.with_operands(logits=signs.astype(np.float32)))


def test_logits_far_from_each_other() -> None:
    case = every_parameter(8, 300)
    case.operands["logits"][:] *= np.float32(1e4)
    case.operands["logits"][1::2] *= np.float32(1e20)
    check(case)


def test_broken_logits() -> None:
    for shift in range(len(PARAMETERS) // 4):
        case = every_parameter(9, 300)
        logits = np.roll(case.operands["logits"], shift, axis=0)
        logits[0] = np.nan
        logits[1] = -np.inf
        logits[2, 5:] = np.nan
        logits[3, 7] = np.inf
        logits[4] = np.inf
        logits[5] = np.finfo(np.float32).max
        logits[6, ::2] = -np.inf
        logits[7, :130] = np.nan
        logits[8, :] = [np.nan, -np.inf, np.nan] * 101
        with np.errstate(invalid="ignore", over="ignore"):
            check(case.with_operands(logits=np.roll(logits, shift, axis=0)))


def test_a_draw_over_equal_logits_reads_the_random_number() -> None:
    case = request_cases.sample(
        np.random.default_rng(2), rows=24, capacity=24, vocab=1024, temperature=1
    )
    case.operands["logits"][:] = 0
    lengths = np.random.default_rng(3).integers(1, 50, 24).astype(np.int32)
    state = case.operands["state"].view(STATE).reshape(-1)
    got = run_small(case.with_operands(query_length=lengths))["tokens"]
    positions = state["consumed"] + lengths
    draws = [uniform(int(s["seed"]), int(p)) for s, p in zip(state, positions, strict=True)]
    assert got.tolist() == [int(u * 1024) for u in draws]


@pytest.mark.parametrize("temperature", [0, 0.9])
def test_rows_go_to_their_lanes(temperature: float) -> None:
    case = request_cases.sample(
        np.random.default_rng(4), rows=5, capacity=6, vocab=200, temperature=temperature
    ).with_operands(lane=i32(2, 0, 9, 4, -1, 3))
    got = check(case)
    assert (got["tokens"][[1, 3, 5]] == -5).all()
    assert (got["tokens"][[0, 2, 4]] != -5).all()


@pytest.mark.parametrize("rows", [-1, 0, 2, 3, 2**31 - 1])
def test_rows_past_the_live_ones_are_left_alone(rows: int) -> None:
    check(request_cases.sample(np.random.default_rng(5), rows=rows, capacity=3, vocab=150))


def test_a_slot_out_of_range_samples_greedily() -> None:
    case = request_cases.sample(
        np.random.default_rng(6), rows=4, capacity=4, vocab=150, temperature=9
    )
    check(case.with_operands(slot=i32(-1, 4, 2**31 - 1, -(2**31))))


@pytest.mark.parametrize("vocab", [1, 64, 129, 600])
def test_scores(vocab: int) -> None:
    case = request_cases.score(
        np.random.default_rng(vocab), rows=7, capacity=8, vocab=vocab, stride=vocab + 5
    )
    case.operands["target"][:3] = [-1, vocab, 2**31 - 1]
    check(case)


@pytest.mark.parametrize("vocab", [1, 17, 129, 600])
def test_ranked_scores(vocab: int) -> None:
    rng = np.random.default_rng(vocab)
    case = request_cases.score_ranked(rng, rows=8, capacity=9, vocab=vocab, stride=vocab + 5)
    case.operands["wanted"][:5] = [-(2**31), -1, 3, 21, 2**31 - 1]
    logits = case.operands["logits"]
    logits[3, :vocab] = rng.choice(logits[3, :3], vocab)
    logits[4] = -np.inf
    logits[5, rng.integers(0, vocab)] = np.nan
    logits[6] = np.nan
    logits[7, rng.integers(0, vocab)] = np.inf
    case.operands["wanted"][3:8] = [20, 20, 9, 20, 20]
    case.operands["target"][3:8] = rng.integers(0, vocab, 5)
    with np.errstate(invalid="ignore"):
        check(case)


def test_scores_have_the_bits_of_a_sampled_token_s_logprob() -> None:
    sampled = every_parameter(10, 500)
    got = run_small(sampled)
    rows = len(PARAMETERS)
    logits = sampled.operands["logits"]
    for build in (request_cases.score, request_cases.score_ranked):
        scored = build(np.random.default_rng(1), rows=rows, capacity=rows, vocab=500, stride=503)
        scores = run_small(scored.with_operands(logits=logits, target=got["tokens"]))["out"]
        assert scores.tobytes() == got["logprobs"].tobytes()


@pytest.mark.parametrize("build", [request_cases.sample, request_cases.score_ranked])
def test_whichever_program_ends_last_folds_the_same(build: Any) -> None:
    case = build(np.random.default_rng(11), rows=2, capacity=2, vocab=600)
    forward, backward = run_small(case), run_small(case, descending=True)
    for name, array in forward.items():
        assert array.tobytes() == backward[name].tobytes(), name


def test_blocks_that_serve_give_the_same_tokens() -> None:
    parameters = {"temperature": 0.8, "top_k": 300, "top_p": 0.95, "min_p": 0.01}
    case = request_cases.sample(
        np.random.default_rng(12), rows=3, capacity=3, vocab=9000, **parameters
    )
    assert run(case)["tokens"].tolist() == by_reference(case)["tokens"].tolist()


def test_a_vocabulary_that_is_too_large_is_refused() -> None:
    case = request_cases.score(np.random.default_rng(0), rows=1, capacity=1, vocab=2)
    assert lowered(case.with_integers(vocab=2**18, stride=2**18))[0].grid == (128, 1, 1)
    with pytest.raises(ContractError, match="262145 tokens, of at most 262144"):
        lowered(case.with_integers(vocab=2**18 + 1, stride=2**18 + 1))
