"""What the cost model learns from durations: lines, noise, change, staleness."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.scheduler.costs import STALE_NS, CostLine, CostModel

MEASUREMENTS = st.lists(
    st.tuples(st.integers(1, 4096), st.integers(-(10**9), 10**12), st.integers(0, 2 * STALE_NS)),
    min_size=1,
    max_size=60,
)


def learn(
    costs: CostModel, line: CostLine, rounds: int, *, noise: float = 0.0, seed: int = 0
) -> None:
    """Reports rounds of 1 to 512 tokens that cost what the line says, more or less."""
    rolls = random.Random(seed)
    for number in range(rounds):
        tokens = rolls.randint(1, 512)
        duration = int(line.at(tokens) * rolls.uniform(1 - noise, 1 + noise))
        costs.observe(0, tokens, 1000 * number, 1000 * number + duration)


@pytest.mark.parametrize(
    "line", [CostLine(1e6, 1e4), CostLine(1e7, 0.0), CostLine(0.0, 1e5), CostLine(3e6, 3e3)]
)
@pytest.mark.parametrize("seed", range(5))
def test_it_converges_to_what_rounds_cost(line: CostLine, seed: int) -> None:
    costs = CostModel()
    learn(costs, line, 300, noise=0.1, seed=seed)
    learned = costs.line(0)
    assert learned is not None
    for tokens in (1, 64, 256, 512):
        assert learned.at(tokens) == pytest.approx(line.at(tokens), abs=0.15 * line.at(512))


def test_it_follows_rounds_that_become_slower_and_faster() -> None:
    costs = CostModel()
    for line in (CostLine(1e6, 1e4), CostLine(8e6, 8e4), CostLine(1e6, 1e4)):
        learn(costs, line, 150)
        assert costs.predict_ns(0, 256) == pytest.approx(line.at(256), rel=0.05)


def test_a_round_that_was_held_up_changes_little() -> None:
    costs = CostModel()
    learn(costs, CostLine(1e6, 1e4), 100)
    before = costs.predict_ns(0, 256)
    assert before is not None
    costs.observe(0, 256, 0, 10**12)
    after = costs.predict_ns(0, 256)
    assert after is not None
    assert before < after < 1.2 * before


def test_one_measurement_is_believed_where_it_was_made_and_in_proportion_elsewhere() -> None:
    costs = CostModel()
    costs.observe(3, 100, 50, 1050)
    assert costs.predict_ns(3, 100) == pytest.approx(1000)
    assert costs.predict_ns(3, 50) == pytest.approx(500)


def test_it_knows_nothing_of_what_never_ran() -> None:
    costs = CostModel()
    costs.observe(1, 4, 0, 10)
    assert costs.predict_ns(2, 4) is None
    assert costs.line(2) is None
    assert not costs.fresh(2)


def test_a_measurement_becomes_stale_while_others_are_made() -> None:
    costs = CostModel()
    costs.observe(1, 4, 0, 10)
    costs.observe(2, 4, STALE_NS, STALE_NS + 10)
    assert costs.fresh(1)
    costs.observe(2, 4, STALE_NS, STALE_NS + 11)
    assert not costs.fresh(1)
    assert costs.fresh(2)
    assert costs.predict_ns(1, 4) == pytest.approx(10), "still the best guess there is"


def test_after_a_long_time_a_new_measurement_counts_most() -> None:
    costs = CostModel()
    learn(costs, CostLine(0.0, 1e4), 3)
    costs.observe(0, 256, 2 * STALE_NS, 2 * STALE_NS + 10**8)
    assert costs.predict_ns(0, 256) == pytest.approx(1e8, rel=0.3)


def test_a_first_round_that_was_held_up_is_forgotten() -> None:
    costs = CostModel()
    costs.observe(0, 256, 0, 10**9)
    assert not costs.settled(0)
    learn(costs, CostLine(1e6, 1e4), 2)
    assert costs.predict_ns(0, 256) == pytest.approx(1e6 + 256e4, rel=0.3)
    assert costs.settled(0)


def test_free_rounds_can_become_dear() -> None:
    costs = CostModel()
    learn(costs, CostLine(0.0, 0.0), 20)
    assert costs.predict_ns(0, 512) == 0.0
    learn(costs, CostLine(0.0, 1e4), 100)
    assert costs.predict_ns(0, 512) == pytest.approx(512e4, rel=0.1)


@given(measurements=MEASUREMENTS)
@settings(deadline=None)
def test_predictions_are_never_negative_and_rise_with_tokens(
    measurements: list[tuple[int, int, int]],
) -> None:
    costs, again = CostModel(), CostModel()
    now = 0
    for tokens, duration, pause in measurements:
        now += pause
        for model in (costs, again):
            model.observe(0, tokens, now, now + duration)
        line = costs.line(0)
        assert line is not None
        assert line.fixed_ns >= 0.0
        assert line.token_ns >= 0.0
        assert line == again.line(0), "equal measurements, unequal predictions"


@given(
    fixed=st.floats(0, 1e9),
    token=st.floats(0, 1e7),
    limit=st.floats(0, 1e10),
    most=st.integers(1, 5000),
)
def test_as_many_tokens_as_fit_and_no_more(
    fixed: float, token: float, limit: float, most: int
) -> None:
    line = CostLine(fixed, token)
    tokens = line.tokens_within(limit, most)
    assert 0 <= tokens <= most
    assert not tokens or line.at(tokens) <= limit * (1 + 1e-9)
    assert tokens == most or line.at(tokens + 1) > limit * (1 - 1e-9)
