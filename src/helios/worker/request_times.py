"""How long requests wait for a slot, and from there for their first token.

What only the worker sees of a request's way; the HTTP process measures the rest. A request that is
preempted goes on with the times that it had.
"""

from __future__ import annotations

from collections.abc import Callable

from helios.scheduler.planned import ADMITTING, PlannedRound
from helios.worker.histograms import (
    FIRST_TOKEN_SECONDS,
    QUEUE_SECONDS,
    Histogram,
    HistogramCounts,
)


class RequestTimes:
    """Requests by their ids, from `submitted` to their first token or `forget`. `clock` gives
    nanoseconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._queue = Histogram(QUEUE_SECONDS)
        self._prefill = Histogram(FIRST_TOKEN_SECONDS)
        self._submitted: dict[int, int] = {}
        self._admitted: dict[int, int] = {}

    def submitted(self, request_id: int) -> None:
        """The scheduler has taken a request."""
        self._submitted[request_id] = self._clock()

    def begun(self, planned: PlannedRound) -> None:
        """A round has been submitted; it may be the first of some requests."""
        if planned.program.operation not in ADMITTING:
            return
        now = self._clock()
        for resident in planned.residents:
            request_id = resident.progress.request.request_id
            submitted = self._submitted.pop(request_id, None)
            if submitted is not None:
                self._queue.observe((now - submitted) / 1e9)
                self._admitted[request_id] = now

    def tokens(self, request_id: int) -> None:
        """A request has tokens; only the first ones count."""
        if self._admitted:
            admitted = self._admitted.pop(request_id, None)
            if admitted is not None:
                self._prefill.observe((self._clock() - admitted) / 1e9)

    def forget(self, request_id: int) -> None:
        """The request has its last event."""
        self._submitted.pop(request_id, None)
        self._admitted.pop(request_id, None)

    def histograms(self) -> dict[str, HistogramCounts]:
        """By metric name without prefix."""
        return {
            "request_queue_seconds": self._queue.counts(),
            "request_prefill_seconds": self._prefill.counts(),
        }
