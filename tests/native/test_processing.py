"""Sampling from processed logits: hand-computed logits, distributions, what gives way.

Expected values are computed here, token by token in float64, as docs/kernels.md words them; the
reference kernel isn't asked.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.native import request_cases, sampling
from tests.native.harness import INSTRUCTION_SETS, Array, run
from tests.native.sampling import mask_of, sampling_row
from tests.native.states import STATE, states

ISA = INSTRUCTION_SETS[0]
LOGITS = [2.0, -1.0, 0.5, 3.0, -2.0, 1.0, 0.0, 2.5]
SEEN = [0, 1, 3, 0, 2, 0, 1, 0]  # how often each token is in prompt and output
SAID = [0, 1, 2, 0, 0, 0, 0, 0]  # and how often in the output


def greedy_order(count: int = 8, **given: Any) -> list[int]:
    """The tokens that greedy sampling picks, each left out of the mask once it was picked: the
    order of the processed logits, as far as they are above −infinity."""
    allowed, order = np.ones(8, np.bool_), []
    while len(order) < count:
        token = one(allowed=allowed, **given)
        if not allowed[token]:
            break
        order.append(token)
        allowed[token] = False
    return order


def one(
    *,
    state: dict[str, float] | None = None,
    row: dict[str, Any] | None = None,
    allowed: Array | None = None,
    eos_ids: tuple[int, ...] = (),
) -> int:
    """The greedy token of LOGITS."""
    states_row = states(1)
    for name, value in (state or {}).items():
        states_row[name] = value
    states_row["eos_ids"][0, : len(eos_ids)] = eos_ids
    masked = allowed is not None and not allowed.all()
    case = sampling.plain_case(
        np.array([LOGITS], np.float32), states_row, [sampling_row(masked=masked, **(row or {}))],
        vocab=8, counts=np.array([SEEN]), outputs=np.array([SAID]),
        masks=None if allowed is None else mask_of(allowed)[None],
    )  # fmt: skip
    return int(run(case, ISA)["tokens"][0])


def by_logit(logits: list[float]) -> list[int]:
    return sorted(range(len(logits)), key=lambda i: (-logits[i], i))


def test_a_bias_is_added() -> None:
    bias = {0: 4.0, 3: -100.0, 4: 3.75, 99: 50.0, -3: 50.0}
    expected = [6.0, -1.0, 0.5, -97.0, 1.75, 1.0, 0.0, 2.5]
    assert greedy_order(row={"bias": bias}) == by_logit(expected)


def test_repetition_divides_positive_and_multiplies_other_logits_of_what_was_seen() -> None:
    expected = [2.0, -1.5, 0.5 / 1.5, 3.0, -3.0, 1.0, 0.0, 2.5]
    assert greedy_order(state={"repetition_penalty": 1.5}) == by_logit(expected)
    rewarded = [2.0, -0.25, 2.0, 3.0, -0.5, 1.0, 0.0, 2.5]  # token 2 ties with token 0
    assert greedy_order(state={"repetition_penalty": 0.25}) == by_logit(rewarded)


@pytest.mark.parametrize("neutral", [0.0, 1.0])
def test_a_repetition_penalty_of_a_row_from_before_there_were_any_is_off(neutral: float) -> None:
    assert greedy_order(state={"repetition_penalty": neutral}) == by_logit(LOGITS)


def test_presence_counts_the_output_alone_and_once() -> None:
    expected = [2.0, -1.0 - 0.75, 0.5 - 0.75, 3.0, -2.0, 1.0, 0.0, 2.5]
    assert greedy_order(state={"presence_penalty": 0.75}) == by_logit(expected)
    drawn_in = [2.0, -1.0 + 2, 0.5 + 2, 3.0, -2.0, 1.0, 0.0, 2.5]  # 2 ties with 7, 1 with 5
    assert greedy_order(state={"presence_penalty": -2}) == by_logit(drawn_in)


def test_frequency_counts_the_output_alone_and_each_time() -> None:
    expected = [2.0, -1.0 - 0.75, 0.5 - 1.5, 3.0, -2.0, 1.0, 0.0, 2.5]
    assert greedy_order(state={"frequency_penalty": 0.75}) == by_logit(expected)


def test_bias_comes_first_then_repetition_then_frequency_and_presence() -> None:
    # Token 1: biased from -1 to 1 it is divided, not multiplied; then 1 · 0.5 and 0.25 come off.
    # Token 2: (0.5 + 3) / 2 - 2 · 0.5 - 0.25. Token 4: -2 · 2.
    state = {"repetition_penalty": 2, "frequency_penalty": 0.5, "presence_penalty": 0.25}
    expected = [2.0, -0.25, 0.5, 3.0, -4.0, 1.0, 0.0, 2.5]
    order = greedy_order(state=state, row={"bias": {1: 2.0, 2: 3.0}})
    assert order == by_logit(expected)


def test_a_mask_leaves_what_it_allows_whatever_the_bias() -> None:
    allowed = np.array([0, 1, 0, 0, 1, 0, 1, 0], np.bool_)
    assert one(allowed=allowed) == 6
    assert one(allowed=allowed, row={"bias": {3: 100.0, 4: 50.0}}) == 4


def test_words_of_a_mask_are_bits_of_tokens() -> None:
    for vocab in (1, 31, 32, 33, 95, 96, 2000):
        logits = np.zeros((vocab, vocab), np.float32)
        masks = np.stack([mask_of(np.arange(vocab) == token) for token in range(vocab)])
        case = sampling.plain_case(
            logits, states(vocab), [sampling_row(masked=True)] * vocab, vocab=vocab, masks=masks
        )
        assert run(case, ISA)["tokens"].tolist() == list(range(vocab)), vocab


def test_a_grammar_s_mask_narrows_the_request_s() -> None:
    allowed = np.array([0, 1, 0, 0, 1, 0, 1, 0], np.bool_)
    grammar = np.array([1, 1, 1, 1, 1, 1, 0, 1], np.bool_)
    for own, expected in ((allowed, 1), (np.ones(8, np.bool_), 3)):
        case = sampling.plain_case(
            np.array([LOGITS], np.float32), states(1), [sampling_row(masked=not own.all())],
            vocab=8, masks=mask_of(own)[None],
        )  # fmt: skip
        got = run(case.with_operands(grammar_mask=mask_of(grammar)[None]), ISA)["tokens"]
        assert got.tolist() == [expected]


@pytest.mark.parametrize(("emitted", "expected"), [(0, 0), (2, 0), (3, 3), (4, 3)])
def test_ends_wait_for_the_least_length(emitted: int, expected: int) -> None:
    state = {"min_tokens": 3, "emitted": emitted}
    assert one(state=state, eos_ids=(3, 5), row={"stop_ids": [7]}) == expected


def test_a_bad_word_of_one_token_never_comes() -> None:
    assert one(row={"sequences": [[3], [7], [1, 0]], "recent": [5]}) == 0


@pytest.mark.parametrize(
    ("recent", "expected"),
    [([], 3), ([6], 3), ([5], 3), ([5, 6], 7), ([1, 5, 6], 7), ([5, 6, 1], 3), ([6, 5], 3)],
)
def test_a_longer_bad_word_is_cut_before_its_last_token(recent: list[int], expected: int) -> None:
    """Tokens 5 and 6, then 3."""
    assert one(row={"sequences": [[5, 6, 3], [2, 3]], "recent": recent}) == expected


def test_the_longest_bad_word_fills_what_is_remembered() -> None:
    recent = [token % 8 for token in range(40)]
    longest = recent[-32:]
    assert one(row={"sequences": [[*longest, 3]], "recent": recent}) == 7
    other = [(longest[0] + 1) % 8, *longest[1:]]
    assert one(row={"sequences": [[*other, 3]], "recent": recent}) == 3
    assert one(row={"sequences": [[1, *longest, 3]], "recent": recent}) == 3  # too long


def test_where_nothing_is_left_words_and_least_length_give_way_and_the_mask_holds() -> None:
    only = np.arange(8) == 4
    assert one(allowed=only, row={"sequences": [[4]]}) == 4
    assert one(allowed=only, eos_ids=(4,), state={"min_tokens": 5}) == 4


def test_greedy_ties_go_to_the_lower_id() -> None:
    assert one(row={"bias": {6: 3.0, 5: 2.0}}) == 3
    assert one(row={"bias": {0: 1.0}}) == 0


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_what_asks_for_nothing_is_sampled_as_sample_does(instruction_set: str) -> None:
    plain = request_cases.sample(
        np.random.default_rng(3), rows=40, capacity=40, vocab=3001, stride=3010, temperature=0.8,
        top_p=0.95,
    )  # fmt: skip
    state = plain.operands["state"].view(STATE).reshape(-1)
    state["temperature"][::3] = 0
    case = sampling.plain_case(plain.operands["logits"], state, [sampling_row()] * 40, vocab=3001)
    got, expected = run(case, instruction_set), run(plain, instruction_set)
    assert got["tokens"].tolist() == expected["tokens"].tolist()
    assert got["logprobs"].tobytes() == expected["logprobs"].tobytes()
    # Nobody asked for alternatives: nothing was written.
    assert (got["top_tokens"] == -5).all()
    assert (got["top_logprobs"] == 5).all()


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_logprobs_are_those_of_the_raw_logits(instruction_set: str) -> None:
    case = sampling.sample_processed(np.random.default_rng(5), capacity=9, vocab=2000)
    got = run(case, instruction_set)
    wide = case.operands["logits"].astype(np.float64)
    expected = wide - wide.max(axis=1, keepdims=True)
    expected -= np.log(np.exp(expected).sum(axis=1, keepdims=True))
    rows = case.operands["sampling"].view(np.int32)[:, 0]
    for lane in range(9):
        np.testing.assert_allclose(
            got["logprobs"][lane], expected[lane, got["tokens"][lane]], rtol=1e-5, atol=1e-5
        )
        wanted = int(rows[lane])
        if not wanted:
            continue
        likeliest = sorted(range(2000), key=lambda i: (-expected[lane, i], i))[:wanted]
        assert got["top_tokens"][lane].tolist() == likeliest + [-1] * (20 - wanted)
        np.testing.assert_allclose(
            got["top_logprobs"][lane, :wanted], expected[lane, likeliest], rtol=1e-5, atol=1e-5
        )
        assert (got["top_logprobs"][lane, wanted:] == 0).all()
    assert 0 < np.count_nonzero(rows) < 9


def test_alternatives_of_equal_logits_are_in_id_order_and_no_more_than_there_are() -> None:
    case = sampling.plain_case(
        np.array([[0, 1, 1, np.nan, 1], [0, 0, 0, 0, 0]], np.float32), states(2),
        [sampling_row(top_logprobs=3), sampling_row(top_logprobs=20)], vocab=5,
    )  # fmt: skip
    tokens = run(case, ISA)["top_tokens"]
    assert tokens[0].tolist() == [1, 2, 4] + [-1] * 17
    assert tokens[1].tolist() == [0, 1, 2, 3, 4] + [-1] * 15


# ------------------------------------------------------------ distributions

VOCAB = 40
DRAWS = 6000


def wanted_distribution(
    logits: list[float],
    state: dict[str, float],
    row: dict[str, Any],
    allowed: NDArray[np.bool_],
    seen: list[int],
    said: list[int],
    eos_ids: tuple[int, ...],
) -> list[float]:
    """Each token's probability, in float64 and in the order of operations that is documented."""
    left = [float(logit) for logit in logits]
    for token, bias in row.get("bias", {}).items():
        left[token] += bias
    repetition = state.get("repetition_penalty", 1.0)
    for token in range(len(left)):
        if seen[token]:
            positive = left[token] > 0
            left[token] = left[token] / repetition if positive else left[token] * repetition
        left[token] -= state.get("frequency_penalty", 0.0) * said[token]
        left[token] -= state.get("presence_penalty", 0.0) * (said[token] > 0)
    banned = {token for token in range(len(left)) if not allowed[token]}
    if state.get("emitted", 0) < state.get("min_tokens", 0):
        banned |= {*eos_ids, *row.get("stop_ids", [])}
    recent = row.get("recent", [])
    for *before, last in row.get("sequences", []):
        if before == recent[len(recent) - len(before) :]:
            banned.add(last)
    kept = sorted(set(range(len(left))) - banned, key=lambda i: (-left[i], i))
    temperature = state["temperature"]
    kept = kept[: int(state.get("top_k", 0)) or None]
    mass = {token: math.exp(left[token] / temperature) for token in kept}
    total, reached, prefix = math.fsum(mass.values()), 0.0, []
    for token in kept:
        prefix.append(token)
        reached += mass[token]
        if reached >= state.get("top_p", 2.0) * total:
            break
    largest = max(mass.values())
    mass = {t: mass[t] for t in prefix if mass[t] >= state.get("min_p", 0.0) * largest}
    total = math.fsum(mass.values())
    return [mass.get(token, 0.0) / total for token in range(len(left))]


PENALTIES = {"repetition_penalty": 1.4, "presence_penalty": 0.6, "frequency_penalty": -0.3}
EVERYTHING: dict[str, Any] = {
    "row": {
        "bias": {3: 2.0, 8: -3.0, 30: 1.5},
        "sequences": [[7], [4, 9, 21], [9, 22], [1, 5]],
        "recent": [2, 4, 9],
        "stop_ids": [13, 14],
        "top_logprobs": 5,
    },
    "mask": True,
}
CASES: dict[str, dict[str, Any]] = {
    "temperature": {"state": {"temperature": 0.6}},
    "top_k": {"state": {"top_k": 7}},
    "top_p": {"state": {"top_p": 0.7}},
    "min_p": {"state": {"min_p": 0.2}},
    "repetition": {"state": {"repetition_penalty": 1.8}},
    "presence": {"state": {"presence_penalty": 1.5}},
    "frequency": {"state": {"frequency_penalty": 0.8}},
    "negative penalties": {"state": {"presence_penalty": -1, "frequency_penalty": -0.5}},
    "bias": {"row": EVERYTHING["row"]},
    "mask": {"mask": True},
    "min_tokens": {"state": {"min_tokens": 2}, "row": {"stop_ids": [13, 14]}},
    "bad words": {"row": {key: EVERYTHING["row"][key] for key in ("sequences", "recent")}},
    "top_k, top_p and min_p": {"state": {"top_k": 20, "top_p": 0.9, "min_p": 0.1}},
    "temperature after penalties": {"state": {**PENALTIES, "temperature": 1.7}},
    "bias and penalties": {"state": PENALTIES, "row": {"bias": {3: 2.0, 8: -3.0, 30: 1.5}}},
    "mask and min_tokens": {"mask": True, "state": {"min_tokens": 2}, "row": {"stop_ids": [13]}},
    "penalties and top_p": {"state": {**PENALTIES, "top_p": 0.8}},
    "everything": {
        **EVERYTHING,
        "state": {
            **PENALTIES, "temperature": 1.3, "top_k": 14, "top_p": 0.9, "min_p": 0.05,
            "min_tokens": 5,
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("name", CASES)
def test_draws_follow_the_distribution(name: str, instruction_set: str) -> None:
    """Chi-squared over positions of one seed and over seeds, all rows of one launch. The bound is
    about five standard deviations above the statistic's mean: a wrong distribution fails."""
    rng = np.random.default_rng(8)
    logits = rng.standard_normal(VOCAB).astype(np.float32) * 1.5
    seen = rng.poisson(0.8, VOCAB)
    said = np.minimum(rng.poisson(0.5, VOCAB), seen)
    allowed = rng.random(VOCAB) < (0.6 if CASES[name].get("mask") else 2.0)
    given: dict[str, float] = {"temperature": 1.0, **CASES[name].get("state", {})}
    row = CASES[name].get("row", {})
    eos_ids = (11, 12)
    state = states(DRAWS)
    for field, value in given.items():
        state[field] = value
    state["eos_ids"][:, :2] = eos_ids
    half = DRAWS // 2
    state["seed"][:half], state["consumed"][:half] = 0xFEDCBA9876543210, np.arange(half)
    state["seed"][half:], state["consumed"][half:] = rng.integers(0, 2**63, half), 5
    case = sampling.plain_case(
        np.tile(logits, (DRAWS, 1)), state,
        [sampling_row(masked=not allowed.all(), **row)] * DRAWS, vocab=VOCAB,
        counts=np.tile(seen, (DRAWS, 1)), outputs=np.tile(said, (DRAWS, 1)),
        masks=np.tile(mask_of(allowed), (DRAWS, 1)),
    )  # fmt: skip
    tokens = run(case, instruction_set)["tokens"]
    expected = DRAWS * np.array(
        wanted_distribution(
            logits.tolist(), given, row, allowed, seen.tolist(), said.tolist(), eos_ids
        )
    )
    counts = np.bincount(tokens, minlength=VOCAB)
    possible = expected > 0
    assert not counts[~possible].any()
    # Tokens that are expected less than five times are taken together.
    rare = possible & (expected < 5)
    common = possible & ~rare
    groups = [(float(counts[t]), float(expected[t])) for t in np.flatnonzero(common)]
    if rare.any():
        groups.append((float(counts[rare].sum()), float(expected[rare].sum())))
    statistic = sum((got - want) ** 2 / want for got, want in groups)
    freedom = max(len(groups) - 1, 1)
    assert statistic < freedom + 5 * math.sqrt(2 * freedom)
    assert len(groups) > 2
