"""Which round comes next: its program and its lanes.

New residents are initialised first, all together; after that prompts and running outputs take
their turns (`turns`), of residents that needn't wait for a completion (`feedback`). Planning takes
the pages that the round needs; the residents themselves are moved on by `planned.advance`, once
the round has been submitted.
"""

from __future__ import annotations

from itertools import islice

from helios.runtime.geometry import Geometry, Operation
from helios.runtime.rounds import Completion, LaneAdmission, LaneWork
from helios.scheduler.cohorts import Cohorts
from helios.scheduler.costs import CostModel
from helios.scheduler.feedback import one_round_at_a_time
from helios.scheduler.options import SchedulerOptions
from helios.scheduler.planned import PlannedRound, planned_round, required_programs
from helios.scheduler.requests import Phase, Resident
from helios.scheduler.residency import Residency
from helios.scheduler.turns import Turns


class RoundPlanner:
    """Plans over the residents of a `Residency` with the programs of a geometry."""

    def __init__(self, geometry: Geometry, residency: Residency, options: SchedulerOptions) -> None:
        self._residency = residency
        self._initialize = required_programs(geometry, Operation.INITIALIZE)
        self._costs = CostModel()
        self._turns = Turns(geometry, Cohorts(geometry, residency), self._costs, options)

    def plan(self, outstanding: int) -> PlannedRound | None:
        """The next round, with `outstanding` rounds in flight; None where no resident can go on
        before a fence."""
        if outstanding and one_round_at_a_time(self._residency.residents):
            return None
        planned = self._plan_initialize()
        if planned is None:
            return self._turns.plan(outstanding)
        self._turns.passed(planned)
        return planned

    def learn(self, planned: PlannedRound, completion: Completion) -> None:
        """Takes in what a completed round cost."""
        self._costs.observe(
            planned.program.index,
            planned.packed_tokens,
            completion.started_ns,
            completion.completed_ns,
        )

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
