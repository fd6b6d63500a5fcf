"""The scheduler's settings. Validated once, here; `Scheduler` trusts them."""

from __future__ import annotations

from typing import Final

from helios.dataclass import dataclass
from helios.errors import HeliosError

DEFAULT_QUEUE_CAPACITY: Final = 256
# Far more than anybody waits for; what is kept for each stays small.
MOST_QUEUED: Final = 65_536
DEFAULT_PREFILL_SHARE: Final = 0.5
LEAST_SHARE: Final = 0.05  # so that neither prompts nor running outputs starve


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """How rounds are made.

    `prefill_chunk_tokens` bounds the prompt tokens of one PREFILL round, over all its lanes (None:
    the largest prefill program's P). `frames_in_flight` is 1 or 2: with 1 a round is planned only
    after the one before it has completed. `queue_capacity` bounds the requests that wait for a
    slot: so many, and as many as there are slots, can be live at once. None takes the core's, or
    `DEFAULT_QUEUE_CAPACITY`.

    While prompts and running outputs compete, `prefill_share` is the share of device time that
    prompts take, and `max_step_ms` the time between two tokens of a running request that prompts
    may stretch it to (None: no bound, but chunks are kept short; see docs/scheduling.md). Without
    `prefix_reuse` no request begins from pages or snapshots of an earlier one.
    """

    prefill_chunk_tokens: int | None = None
    frames_in_flight: int = 2
    queue_capacity: int | None = None
    max_step_ms: float | None = None
    prefill_share: float = DEFAULT_PREFILL_SHARE
    prefix_reuse: bool = True

    def __post_init__(self) -> None:
        _require(
            self.prefill_chunk_tokens is None or self.prefill_chunk_tokens >= 1,
            "prefill_chunk_tokens",
            "at least 1",
        )
        _require(self.frames_in_flight in (1, 2), "frames_in_flight", "1 or 2")
        _require(
            self.queue_capacity is None or 1 <= self.queue_capacity <= MOST_QUEUED,
            "queue_capacity",
            f"1 to {MOST_QUEUED}",
        )
        _require(
            self.max_step_ms is None or 0 < self.max_step_ms < float("inf"),
            "max_step_ms",
            "more than 0 milliseconds",
        )
        _require(
            LEAST_SHARE <= self.prefill_share <= 1 - LEAST_SHARE,
            "prefill_share",
            f"{LEAST_SHARE} to {1 - LEAST_SHARE}",
        )

    @property
    def queue_limit(self) -> int:
        """Requests that may wait for a slot."""
        return DEFAULT_QUEUE_CAPACITY if self.queue_capacity is None else self.queue_capacity


def _require(holds: bool, field: str, allowed: str) -> None:
    if not holds:
        raise HeliosError(
            "the value is out of range",
            where=f"SchedulerOptions.{field}",
            remedy=f"Set it to {allowed}",
        )
