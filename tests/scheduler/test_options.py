"""Settings that no scheduler could keep are refused by name."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from helios.cli_options import QueueCapacity
from helios.command_line import Option
from helios.errors import HeliosError
from helios.scheduler.options import MOST_QUEUED, SchedulerOptions


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ({"queue_capacity": 0}, "1 to 65536"),
        ({"queue_capacity": MOST_QUEUED + 1}, "1 to 65536"),
        ({"prefill_chunk_tokens": 0}, "at least 1"),
        ({"frames_in_flight": 3}, "1 or 2"),
        ({"max_step_ms": 0.0}, "more than 0"),
        ({"prefill_share": 0.99}, "0.05 to 0.95"),
    ],
)
def test_settings_out_of_range_are_named(given: dict[str, Any], allowed: str) -> None:
    (field,) = given
    with pytest.raises(HeliosError, match=rf"SchedulerOptions\.{field}: .*Set it to {allowed}"):
        SchedulerOptions(**given)


def test_the_command_s_bound_is_the_scheduler_s() -> None:
    (option,) = (mark for mark in get_args(QueueCapacity) if isinstance(mark, Option))
    assert (option.minimum, option.maximum) == (1, MOST_QUEUED)
    assert SchedulerOptions(queue_capacity=MOST_QUEUED).queue_limit == MOST_QUEUED
