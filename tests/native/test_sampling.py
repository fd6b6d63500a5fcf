"""`sample` and what selects rows against numpy; the random numbers against published vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.native import layer_cases, request_cases
from tests.native.harness import INSTRUCTION_SETS, Case, run
from tests.native.sampled_lanes import PARAMETERS
from tests.native.states import STATE

F32 = NDArray[np.float32]


def philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Philox4x32-10."""
    x, (low, high) = counter, key
    mask = 0xFFFFFFFF
    for _ in range(10):
        first, second = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = (
            (second >> 32) ^ x[1] ^ low,
            second & mask,
            (first >> 32) ^ x[3] ^ high,
            first & mask,
        )
        low, high = (low + 0x9E3779B9) & mask, (high + 0xBB67AE85) & mask
    return x


def uniform(seed: int, position: int) -> float:
    x = philox((position, 0, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))
    return float(((x[0] << 32 | x[1]) >> 11) * 2.0**-53)


def test_philox_matches_published_vectors() -> None:
    # Known answers of the Random123 distribution.
    assert philox((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    ones = 0xFFFFFFFF
    assert philox((ones,) * 4, (ones, ones)) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)


def expected_token(logits: F32, state: NDArray[np.void], u: float) -> int:
    """What docs/kernels.md says, with a full sort."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    temperature = np.float32(state["temperature"])
    if temperature <= 0:
        return order[0]
    scaled = logits / temperature
    weight = np.exp((scaled - scaled.max()).astype(np.float32)).astype(np.float64)
    if state["top_k"] > 0:
        order = order[: state["top_k"]]
    if state["top_p"] < 1:
        running = np.cumsum(weight[order])
        order = order[: int(np.argmax(running >= state["top_p"] * running[-1])) + 1]
    kept = sorted(i for i in order if weight[i] >= state["min_p"])
    running = np.cumsum(weight[kept])
    return kept[int(np.argmax(running > u * running[-1]))]


def check(case: Case, instruction_set: str) -> None:
    got = run(case, instruction_set)
    state = case.operands["state"].view(STATE).reshape(-1)
    vocab = case.integers["vocab"]
    for lane in range(case.integers["capacity"]):
        logits = case.operands["logits"][lane, :vocab]
        u = uniform(int(state[lane]["seed"]), int(state[lane]["consumed"]) + 1)
        token = expected_token(logits, state[lane], u)
        assert got["tokens"][lane] == token
        wide = logits.astype(np.float64)
        logprob = wide[token] - wide.max() - np.log(np.exp(wide - wide.max()).sum())
        np.testing.assert_allclose(got["logprobs"][lane], logprob, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("vocab", [1, 17, 64, 4999])
@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
def test_sample(parameters: dict[str, Any], vocab: int, instruction_set: str) -> None:
    rng = np.random.default_rng(vocab)
    check(
        request_cases.sample(rng, rows=8, capacity=8, vocab=vocab, stride=vocab + 3, **parameters),
        instruction_set,
    )


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
def test_ties_go_to_lower_ids(parameters: dict[str, Any], instruction_set: str) -> None:
    case = request_cases.sample(
        np.random.default_rng(1), rows=8, capacity=8, vocab=500, **parameters
    )
    case.operands["logits"][:] = np.round(case.operands["logits"])
    check(case, instruction_set)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_a_draw_over_equal_logits_reads_the_random_number(instruction_set: str) -> None:
    case = request_cases.sample(
        np.random.default_rng(2), rows=64, capacity=64, vocab=1024, temperature=1
    )
    case.operands["logits"][:] = 0
    state = case.operands["state"].view(STATE).reshape(-1)
    got = run(case, instruction_set)["tokens"]
    draws = [uniform(int(s["seed"]), int(s["consumed"]) + 1) for s in state]
    assert got.tolist() == [int(u * 1024) for u in draws]


def test_the_random_number_follows_the_position() -> None:
    case = request_cases.sample(
        np.random.default_rng(3), rows=4, capacity=4, vocab=1024, temperature=1
    )
    case.operands["logits"][:] = 0
    state = case.operands["state"].view(STATE).reshape(-1)
    state["seed"] = 0x0123456789ABCDEF
    lengths = np.array([1, 7, 30, 2], np.int32)
    got = run(case.with_operands(query_length=lengths), INSTRUCTION_SETS[0])["tokens"]
    positions = state["consumed"] + lengths
    assert got.tolist() == [int(uniform(0x0123456789ABCDEF, int(p)) * 1024) for p in positions]


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_rows_go_to_their_lanes(instruction_set: str) -> None:
    case = request_cases.sample(np.random.default_rng(4), rows=3, capacity=4, vocab=100)
    lane = np.array([2, 0, 9, 1], np.int32)
    got = run(case.with_operands(lane=lane), instruction_set)["tokens"]
    best = case.operands["logits"].argmax(axis=1)
    assert got.tolist() == [best[1], -5, best[0], -5]


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
def test_broken_logits_give_a_token_of_the_vocabulary(
    parameters: dict[str, Any], instruction_set: str
) -> None:
    case = request_cases.sample(
        np.random.default_rng(5), rows=7, capacity=7, vocab=300, **parameters
    )
    logits = case.operands["logits"]
    logits[0] = np.nan
    logits[1] = -np.inf
    logits[2, 5:] = np.nan
    logits[3, 7] = np.inf
    logits[4] = np.inf
    logits[5] = np.finfo(np.float32).max
    logits[6, ::2] = -np.inf
    tokens = run(case, instruction_set)["tokens"]
    assert np.all((tokens >= 0) & (tokens < 300))
    assert tokens[2] < 5
    assert tokens[3] == 7
    assert tokens[6] % 2 == 1


def test_a_slot_out_of_range_samples_greedily() -> None:
    case = request_cases.sample(
        np.random.default_rng(6), rows=2, capacity=2, vocab=50, temperature=9
    )
    got = run(case.with_operands(slot=np.array([-1, 2], np.int32)), INSTRUCTION_SETS[0])
    assert got["tokens"].tolist() == case.operands["logits"].argmax(axis=1).tolist()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_select_last(threads: int) -> None:
    case = layer_cases.select_last(
        np.random.default_rng(7), rows=6, capacity=7, packed_capacity=12, width=5
    ).with_operands(
        query_length=np.array([3, 0, 4, -2, 1, 9, 1], np.int32),
        sample=np.array([1, 1, 0, 1, 1, 1, 1], np.int32),
    )
    got = run(case, INSTRUCTION_SETS[0], threads=threads)
    # The last lane's rows would end past the packed rows; lane 6 isn't live.
    assert got["selected_rows"].tolist() == [2]
    assert got["selected_lane"].tolist() == [0, 4, -5, -5, -5, -5, -5]
    np.testing.assert_array_equal(got["out"][:2], case.operands["x"][[2, 7]])
    np.testing.assert_array_equal(got["out"][2:], case.operands["out"][2:])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_select_attending(threads: int) -> None:
    case = layer_cases.select_attending(
        np.random.default_rng(8), rows=4, capacity=5, packed_capacity=9, width=5, elements=3,
        dtype=7,
    ).with_operands(
        query_length=np.array([3, 2, 0, 4, 1], np.int32),
        sample=np.array([1, 0, 1, 1, 1], np.int32),
    )  # fmt: skip
    got = run(case, INSTRUCTION_SETS[0], threads=threads)
    assert got["selected_rows"].tolist() == [2]
    assert got["selected_lane"].tolist() == [0, 3, -5, -5, -5]
    for out, source in (
        ("out", "x"), ("out_queries", "queries"), ("out_positions", "positions"),
        ("out_slot", "slot"),
    ):  # fmt: skip
        assert got[out][:2].tobytes() == case.operands[source][[2, 8]].tobytes(), out
        assert got[out][2:].tobytes() == case.operands[out][2:].tobytes(), out


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_a_score_has_the_bits_of_a_sampled_token_s_logprob(instruction_set: str) -> None:
    sampled = request_cases.sample(
        np.random.default_rng(21), rows=9, capacity=9, vocab=2999, stride=3003, temperature=1.3
    )
    got = run(sampled, instruction_set)
    scored = request_cases.score(
        np.random.default_rng(22), rows=9, capacity=9, vocab=2999, stride=3003
    )
    scores = run(
        scored.with_operands(logits=sampled.operands["logits"], target=got["tokens"]),
        instruction_set,
    )["out"]
    assert scores.tobytes() == got["logprobs"].tobytes()


def test_a_target_outside_the_vocabulary_has_no_score() -> None:
    case = request_cases.score(np.random.default_rng(23), rows=4, capacity=5, vocab=50, stride=64)
    case.operands["target"][:] = [-1, 50, 0, 49, 7]
    got = run(case, INSTRUCTION_SETS[0])["out"]
    assert np.isnan(got[:2]).all()
    assert np.isfinite(got[2:4]).all()
    assert got[4] == case.operands["out"][4]
