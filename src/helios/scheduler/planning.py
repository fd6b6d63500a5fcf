"""Which round comes next: its program and its lanes.

Snapshots that are due go first, for slots and pages wait for them, then the rounds that give new
residents their state; after that prompts and running outputs take their turns (`turns`), of
residents that needn't wait for a completion (`feedback`). Planning takes the pages that the round
needs; the residents themselves are moved on by `planned.advance`, once the round has been
submitted.
"""

from __future__ import annotations

from helios.runtime.geometry import Geometry
from helios.scheduler.cohorts import Cohorts
from helios.scheduler.costs import CostModel
from helios.scheduler.feedback import one_round_at_a_time
from helios.scheduler.options import SchedulerOptions
from helios.scheduler.planned import PlannedRound
from helios.scheduler.planning_admission import AdmissionRounds
from helios.scheduler.residency import Residency
from helios.scheduler.snapshots import Snapshots
from helios.scheduler.turns import Turns


class RoundPlanner:
    """Plans over the residents of a `Residency` with the programs of a geometry."""

    def __init__(
        self,
        geometry: Geometry,
        residency: Residency,
        snapshots: Snapshots,
        options: SchedulerOptions,
        costs: CostModel,
    ) -> None:
        self._residency = residency
        self._snapshots = snapshots
        self._admissions = AdmissionRounds(geometry, residency, snapshots)
        self._cohorts = Cohorts(geometry, residency)
        self._turns = Turns(geometry, self._cohorts, costs, options)

    def plan(self, outstanding: int) -> PlannedRound | None:
        """The next round, with `outstanding` rounds in flight; None where no resident can go on
        before a fence."""
        if outstanding and one_round_at_a_time(self._residency.residents):
            return None
        planned = self._snapshots.plan() or self._admissions.plan()
        if planned is None:
            return self._turns.plan(outstanding)
        self._turns.passed(planned)
        return planned

    def look_ahead(self) -> PlannedRound | None:
        """The next round as far as it can be told by now; see `Cohorts.look_ahead`."""
        return self._cohorts.look_ahead()
