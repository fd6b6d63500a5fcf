"""Who takes part in a round of prompts or of running outputs, and with how many tokens.

A cohort takes the pages that its round needs, and may preempt for them. Whose turn it is, and how
large a chunk may be, is decided by the caller (`RoundPlanner`).
"""

from __future__ import annotations

from operator import attrgetter

from helios.runtime.geometry import Geometry, Operation
from helios.runtime.rounds import LaneWork
from helios.scheduler.planned import PlannedRound, planned_round, required_programs
from helios.scheduler.requests import Phase, Resident
from helios.scheduler.residency import Residency

_BY_LAST_TURN = attrgetter("last_turn", "order")


class Cohorts:
    """Makes rounds of the residents of a `Residency` with the programs of a geometry."""

    def __init__(self, geometry: Geometry, residency: Residency) -> None:
        self._residency = residency
        self.prefill = required_programs(geometry, Operation.PREFILL)
        self.decode = required_programs(geometry, Operation.DECODE)

    def prefill_round(self, token_budget: int) -> PlannedRound | None:
        """Packs prompts, oldest first, up to the budget and the largest program's lanes."""
        residency = self._residency
        tokens_left = token_budget
        lanes_left = self.prefill[-1].batch_capacity
        residents: list[Resident] = []
        lanes: list[LaneWork] = []
        # make_room removes residents only behind the one it makes room for.
        for resident in residency.residents:
            if resident.phase is not Phase.PREFILLING:
                continue
            start = resident.planned_consumed
            if residency.reach(resident) <= start and not residency.make_room(resident):
                continue
            end = min(start + tokens_left, resident.prompt_tokens, residency.reach(resident))
            residency.cover(resident, end)
            residents.append(resident)
            lanes.append(
                LaneWork(
                    resident.slot,
                    resident.generation,
                    start,
                    resident.progress.tokens[start:end],
                    end == resident.prompt_tokens,
                    resident.pages,
                )
            )
            tokens_left -= end - start
            lanes_left -= 1
            if not tokens_left or not lanes_left:
                break
        if not lanes:
            return None
        return planned_round(self.prefill, residents, lanes, token_budget - tokens_left)

    def decode_round(self) -> PlannedRound | None:
        """One token for every decoding resident; where they are more than the largest program's
        lanes, for those that have waited longest."""
        residency = self._residency
        ready: list[Resident] = []
        # make_room removes residents only behind the one it makes room for.
        for resident in residency.residents:
            if resident.phase is not Phase.DECODING:
                continue
            if resident.planned_consumed == resident.covered:
                if not residency.make_room(resident):
                    continue
                residency.cover(resident, resident.covered + 1)
            ready.append(resident)
        if not ready:
            return None
        largest = self.decode[-1].batch_capacity
        if len(ready) > largest:
            ready = sorted(ready, key=_BY_LAST_TURN)[:largest]
        lanes = [
            LaneWork(r.slot, r.generation, r.planned_consumed, (), True, r.pages) for r in ready
        ]
        return planned_round(self.decode, ready, lanes)
