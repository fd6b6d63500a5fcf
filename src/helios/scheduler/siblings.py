"""Requests that wait for another one's prompt: choices of one question beside the first.

A sibling has its leader's prompt and a seed of its own. It joins the queue when the leader's prompt
is published, and then begins from it: the prompt is computed once. Where the leader ends before
that it joins at once and computes the prompt itself. `Scheduler` is the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from helios.runtime.geometry import Operation
from helios.scheduler.completion import InFlight
from helios.scheduler.live import LiveRequests
from helios.scheduler.requests import Progress, Request, Resident
from helios.scheduler.residency import Residency


class Siblings:
    """Those that are held back, by their leader. Nobody is where nothing is shared."""

    def __init__(
        self,
        live: LiveRequests,
        residency: Residency,
        in_flight: Collection[InFlight],
        *,
        shares: bool,
    ) -> None:
        self._live = live
        self._residency = residency
        self._in_flight = in_flight
        self._shares = shares
        self._held: dict[Progress, list[Progress]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def __bool__(self) -> bool:
        return bool(self._held)

    def __iter__(self) -> Iterator[Progress]:
        for siblings in self._held.values():
            yield from siblings

    def hold(self, progress: Progress) -> bool:
        """Whether a new request waits for its leader's prompt."""
        leader = self._leader_of(progress.request)
        if leader is None or not self._leads(leader):
            return False
        self._held.setdefault(leader, []).append(progress)
        return True

    def remove(self, progress: Progress) -> bool:
        """Forgets a request; whether it was held."""
        for leader, siblings in self._held.items():
            if progress in siblings:
                siblings.remove(progress)
                if not siblings:
                    del self._held[leader]
                return True
        return False

    def release(self) -> list[Progress]:
        """Those whose leader doesn't lead any more; they aren't held from now on."""
        done = [leader for leader in self._held if not self._leads(leader)]
        return [progress for leader in done for progress in self._held.pop(leader)]

    def clear(self) -> None:
        """Forgets everybody."""
        self._held.clear()

    def _leader_of(self, request: Request) -> Progress | None:
        """The live request whose prompt this one shares, if it may."""
        if request.sibling_of is None or not (self._shares and request.prefix_reuse):
            return None
        leader = self._live.find(request.sibling_of)
        if leader is None or request.score_prompt or leader.request.prompt != request.prompt:
            return None
        return leader

    def _leads(self, leader: Progress) -> bool:
        """Whether what the leader computes of its prompt is still to be published: its last chunk
        has no fence yet, or the snapshot of its last page hasn't."""
        resident = self._residency.of(leader)
        if not self._live.holds(leader):
            return resident is not None
        if not leader.emitted:
            return True
        return resident is not None and self._is_saved(resident)

    def _is_saved(self, resident: Resident) -> bool:
        """Whether a snapshot of it is due or in flight."""
        return resident.due_endpoint >= 0 or any(
            flight.planned.program.operation is Operation.SNAPSHOT
            and resident in flight.planned.residents
            for flight in self._in_flight
        )
