"""Tokens that a request's grammar leaves no choice about: they are consumed together, as a prompt's
are, instead of being sampled one by one.

They count as generated: the device is told of them with the state that an INITIALIZE round writes
anew where the request stands, and their logprobs come from the forward pass that consumes them, in
a program that scores its tokens. So what follows is what would have followed had they been sampled.
The worker knows grammars and is the caller.
"""

from __future__ import annotations

from collections.abc import Sequence

from helios.runtime.geometry import Geometry, Operation
from helios.scheduler.live import LiveRequests
from helios.scheduler.requests import Phase, Resident
from helios.scheduler.residency import Residency


class Forcing:
    """Asks with `room`, does it with `force`."""

    def __init__(self, geometry: Geometry, residency: Residency, live: LiveRequests) -> None:
        rules = geometry.history
        # All state but the cache's pages can be written from what the host knows.
        written = rules.starts_at_pages and rules.record_tokens == 1
        self._possible = written and bool(geometry.of(Operation.SCORED_PREFILL))
        self._alternatives = geometry.scoring.alternatives
        self._residency = residency
        self._live = live

    def room(self, request_id: int) -> int:
        """How many tokens the request can be given now: none where it doesn't decode, or a round of
        it is in flight, or the programs can't say of such tokens what was asked. One more must be
        left to be sampled."""
        resident = self._decoding(request_id)
        if resident is None or resident.rounds_in_flight or resident.progress.request.host_stops:
            return 0
        if resident.top_logprobs and not self._alternatives:
            return 0
        progress = resident.progress
        return max(progress.request.output_limit - progress.emitted - 1, 0)

    def others(self, request_id: int) -> int:
        """How many other requests decode, and would wait for a round of this one."""
        return sum(
            resident.phase is Phase.DECODING and resident.progress.request.request_id != request_id
            for resident in self._residency.residents
        )

    def force(self, request_id: int, tokens: Sequence[int]) -> None:
        """The tokens follow those that the request has. None of them may end it."""
        assert 0 < len(tokens) <= self.room(request_id), "tokens are forced without room"
        resident = self._decoding(request_id)
        assert resident is not None
        progress = resident.progress
        progress.tokens.extend(tokens)
        progress.forced = len(tokens)
        self._residency.refresh(resident)

    def _decoding(self, request_id: int) -> Resident | None:
        progress = self._live.find(request_id) if self._possible else None
        resident = None if progress is None else self._residency.of(progress)
        return resident if resident is not None and resident.phase is Phase.DECODING else None
