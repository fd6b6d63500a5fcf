"""What the scheduler counts for statistics. Only ever grows; the worker reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

from helios.scheduler.events import Finish


@dataclass(slots=True)
class SchedulerCounters:
    """Counts since start. `prompt_tokens` are those of accepted requests; `prefilled_tokens`
    those that PREFILL rounds consumed, so preemption counts them again; `empty_lanes` are lanes
    of rounds submitted before the host knew that the request had ended."""

    submitted: int = 0
    rejected: int = 0
    prompt_tokens: int = 0
    prefilled_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    empty_lanes: int = 0
    finished: dict[Finish, int] = field(default_factory=lambda: dict.fromkeys(Finish, 0))
