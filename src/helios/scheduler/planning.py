"""Which round comes next: its program and its lanes.

New residents are initialised first, all together. After that PREFILL and DECODE rounds take
turns, so that neither prompts nor running outputs wait for the other. Planning takes the pages
that the round needs; the residents themselves are moved on by `planned.advance`, once the round
has been submitted.
"""

from __future__ import annotations

from itertools import islice

from helios.runtime.geometry import Geometry, Operation
from helios.runtime.rounds import LaneAdmission, LaneWork
from helios.scheduler.cohorts import Cohorts
from helios.scheduler.options import SchedulerOptions
from helios.scheduler.planned import PlannedRound, planned_round, required_programs
from helios.scheduler.requests import Phase, Resident
from helios.scheduler.residency import Residency


class RoundPlanner:
    """Plans over the residents of a `Residency` with the programs of a geometry."""

    def __init__(self, geometry: Geometry, residency: Residency, options: SchedulerOptions) -> None:
        self._residency = residency
        self._initialize = required_programs(geometry, Operation.INITIALIZE)
        self._cohorts = Cohorts(geometry, residency)
        largest = self._cohorts.prefill[-1].packed_token_capacity
        self._chunk_tokens = min(options.prefill_chunk_tokens or largest, largest)
        self._prefilled_last = False

    def plan(self) -> PlannedRound | None:
        """The next round, or None where no resident can go on before a fence."""
        planned = self._plan_initialize()
        if planned is not None:
            return planned
        cohorts, chunk = self._cohorts, self._chunk_tokens
        if self._prefilled_last:
            planned = cohorts.decode_round() or cohorts.prefill_round(chunk)
        else:
            planned = cohorts.prefill_round(chunk) or cohorts.decode_round()
        if planned is not None:
            self._prefilled_last = planned.program.operation is Operation.PREFILL
        return planned

    def _plan_initialize(self) -> PlannedRound | None:
        largest = self._initialize[-1].batch_capacity
        admitted = (r for r in self._residency.residents if r.phase is Phase.ADMITTED)
        residents = list(islice(admitted, largest))
        if not residents:
            return None
        lanes = [
            LaneWork(r.slot, r.generation, 0, (), False, r.pages, _admission(r)) for r in residents
        ]
        return planned_round(self._initialize, residents, lanes)


def _admission(resident: Resident) -> LaneAdmission:
    request = resident.progress.request
    return LaneAdmission(
        sampling=request.sampling,
        output_limit=request.output_limit,
        emitted=resident.progress.emitted,
        eos_ids=request.eos_ids,
    )
