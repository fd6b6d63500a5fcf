"""What a response's queue must hold, and that the client's queues hold it."""

from __future__ import annotations

import pytest

from helios.worker.event_budget import event_budget
from helios.worker.messages import Sampling, Submit

PLAIN = Submit(1, [5, 6, 7], 100, Sampling(1.0, 0, 1.0, 0.0, 0), [])
OBSERVED = Submit(1, [5, 6, 7], 100, Sampling(1.0, 0, 1.0, 0.0, 0), [], observed=True)
SCORED = Submit(1, [5, 6, 7], 100, Sampling(1.0, 0, 1.0, 0.0, 0), [], score_prompt=True)


@pytest.mark.clause("OBS-5", "HTTP-4")
def test_an_observation_a_token_is_counted_where_it_is_asked_for() -> None:
    assert event_budget(PLAIN, 0) > 100
    assert event_budget(OBSERVED, 0) == event_budget(PLAIN, 0) + 100
    assert event_budget(SCORED, 0) == event_budget(PLAIN, 0) + 3


@pytest.mark.clause("HTTP-5")
def test_the_event_capacity_is_a_minimum_and_no_cap() -> None:
    assert event_budget(PLAIN, 5000) == 5000
    assert event_budget(PLAIN, 5) == event_budget(PLAIN, 0)
