"""What the scheduler counts for statistics. Only ever grows; the worker reads it."""

from __future__ import annotations

from dataclasses import field

from helios.dataclass import dataclass
from helios.scheduler.events import Finish


@dataclass(slots=True)
class SchedulerCounters:
    """Counts since start. `prompt_tokens` are those of accepted requests, `cached_tokens` what of
    them their first admission found in the prefix cache; `prefilled_tokens` those that PREFILL
    rounds consumed, so preemption counts them again; `empty_lanes` are lanes of rounds submitted
    before the host knew that the request had ended. `forced_tokens` are those output tokens that a
    grammar left no choice about and that were consumed without being sampled.

    `mixed_grammar_decode_steps` are submitted rounds in which both constrained and unconstrained
    requests decode, `constrained_max_inflight` the most rounds in flight right after one with a
    constrained request was submitted.

    `prefix_queries` are admissions that were free to reuse something, `prefix_queried_tokens` what
    they could have reused at most; preempted requests count again. `preemptions_by_snapshot` are
    those preemptions for which a snapshot was begun; the others leave whole pages at most.
    `device_ns` is how long rounds ran; for those of which there was a prediction, `predicted_ns`
    and `prediction_error_ns` sum it up and how far off it was either way.
    """

    submitted: int = 0
    rejected: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefilled_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    empty_lanes: int = 0
    forced_tokens: int = 0
    mixed_grammar_decode_steps: int = 0
    constrained_max_inflight: int = 0
    prefix_queries: int = 0
    prefix_queried_tokens: int = 0
    preemptions_by_snapshot: int = 0
    device_ns: int = 0
    predicted_ns: float = 0.0
    prediction_error_ns: float = 0.0
    finished: dict[Finish, int] = field(default_factory=lambda: dict.fromkeys(Finish, 0))

    def prefix_looked_up(self, reusable_tokens: int) -> None:
        """A request has been admitted that could have reused so many tokens."""
        if reusable_tokens:
            self.prefix_queries += 1
            self.prefix_queried_tokens += reusable_tokens

    def round_ran(self, device_ns: int, predicted_ns: float | None) -> None:
        """A round has completed; None where there was no prediction."""
        self.device_ns += device_ns
        if predicted_ns is not None:
            self.predicted_ns += predicted_ns
            self.prediction_error_ns += abs(device_ns - predicted_ns)
