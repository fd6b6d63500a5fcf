"""First tokens of many seeds through the whole engine, chi-squared against float64.

What a token's probability should be follows from the logprobs that the engine itself reports, which
are those of the raw logits, and from the parameters as the documents word them. The kernels' own
distributions, penalties included, are in tests/native/test_processing.py; here it is that every
parameter gets from the options into them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helios.engine import Engine, GenerationOptions
from tests.engine.conftest import PREPARATION

PROMPT = [199, 326]  # one after which this model is undecided
SEEDS, CHOICES = 12, 128
DRAWS = SEEDS * CHOICES
LIKELIEST = 20

# `bias`, `allowed` and `bad` are by a token's place among the likeliest.
CASES: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.6, "allowed": range(20)},
    "high temperature": {"temperature": 1.9, "allowed": range(20)},
    "top_k": {"top_k": 9},
    "top_p": {"top_p": 0.6, "allowed": range(20)},
    "min_p": {"min_p": 0.5, "allowed": range(20)},
    "bias": {"bias": {0: -2.0, 3: 1.5, 7: 0.75, 9: -100.0}, "allowed": range(20)},
    "allowed": {"allowed": [1, 4, 5, 11]},
    "bad words": {"bad": [0, 2], "top_k": 12, "allowed": range(20)},
    "top_k and top_p": {"top_k": 15, "top_p": 0.8},
    "top_k and min_p": {"top_k": 15, "min_p": 0.6, "temperature": 1.5},
    "everything": {
        "temperature": 1.3, "top_k": 14, "top_p": 0.95, "min_p": 0.2, "allowed": range(18),
        "bias": {1: -1.0, 6: 1.25}, "bad": [4],
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def engine(tiny_core: Path) -> Iterator[Engine]:
    with Engine.open(
        tiny_core, accept=PREPARATION.namespace, allow_unknown_publisher=True, threads=1
    ) as opened:
        yield opened


@pytest.fixture(scope="module")
def likeliest(engine: Engine) -> dict[int, float]:
    """The likeliest first tokens and their logprobs, most likely first."""
    options = GenerationOptions(max_tokens=1, temperature=0.0, top_logprobs=LIKELIEST)
    (answer,) = engine.generate([PROMPT], options)
    return {one.token: one.logprob for one in answer.alternatives[0]}


def wanted(likeliest: dict[int, float], case: dict[str, Any]) -> dict[int, float]:
    """Each token's probability, in float64 and in the documented order of operations."""
    tokens = list(likeliest)
    left = dict(likeliest)
    for place, bias in case.get("bias", {}).items():
        left[tokens[place]] += bias
    banned = {tokens[place] for place in case.get("bad", [])}
    if "allowed" in case:
        banned |= {t for place, t in enumerate(tokens) if place not in case["allowed"]}
    kept = sorted(set(tokens) - banned, key=lambda t: (-left[t], t))[: case.get("top_k")]
    mass = {t: math.exp(left[t] / case.get("temperature", 1.0)) for t in kept}
    total, reached, prefix = math.fsum(mass.values()), 0.0, []
    for token in kept:
        prefix.append(token)
        reached += mass[token]
        if reached >= case.get("top_p", 2.0) * total:
            break
    least = case.get("min_p", 0.0) * max(mass.values())
    mass = {t: mass[t] for t in prefix if mass[t] >= least}
    return {t: m / math.fsum(mass.values()) for t, m in mass.items()}


def drawn(engine: Engine, options: GenerationOptions) -> Counter[int]:
    """First tokens of consecutive seeds."""
    counts: Counter[int] = Counter()
    for batch in range(SEEDS):
        seeded = replace(options, seed=2**40 + batch * CHOICES)
        counts.update(one.tokens[0] for one in engine.choices(PROMPT, CHOICES, seeded))
    return counts


@pytest.mark.parametrize("name", CASES)
def test_first_tokens_follow_the_distribution(
    engine: Engine, likeliest: dict[int, float], name: str
) -> None:
    """The bound is about five standard deviations above the statistic's mean. Seeds are fixed, so
    the outcome is the same each time."""
    case, tokens = CASES[name], list(likeliest)
    options = GenerationOptions(
        max_tokens=1,
        temperature=case.get("temperature", 1.0),
        top_k=case.get("top_k", 0),  # the core recommends others
        top_p=case.get("top_p", 1.0),
        min_p=case.get("min_p", 0.0),
        logit_bias={tokens[place]: bias for place, bias in case.get("bias", {}).items()},
        allowed_token_ids=[tokens[i] for i in case["allowed"]] if "allowed" in case else None,
        bad_words=[[tokens[place]] for place in case.get("bad", [])],
    )
    counts = drawn(engine, options)
    probabilities = wanted(likeliest, case)
    assert sum(counts.values()) == DRAWS
    assert set(counts) <= set(probabilities)
    groups = [(counts[t], DRAWS * p) for t, p in probabilities.items() if DRAWS * p >= 5]
    rest = DRAWS - sum(want for _, want in groups)
    if rest > 1e-6:
        groups.append((DRAWS - sum(got for got, _ in groups), rest))
    statistic = sum((got - want) ** 2 / want for got, want in groups)
    freedom = len(groups) - 1
    assert freedom >= 3
    assert statistic < freedom + 5 * math.sqrt(2 * freedom)
