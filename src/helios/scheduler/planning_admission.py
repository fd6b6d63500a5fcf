"""Rounds that give a new resident its state: INITIALIZE, RESTORE or RESUME, by what its hold has.

- INITIALIZE where it begins at token 0, or at a page's end with held pages alone; and where it
  stands, if it has been given tokens that its grammar forces (`forcing`).
- RESTORE where the state is copied from a snapshot.
- RESUME where all of its tokens but the last one are there, which becomes its pending token: no
  prompt is left, and it decodes next.
"""

from __future__ import annotations

from helios.runtime.geometry import Geometry, Operation
from helios.runtime.rounds import LaneAdmission, LaneExtras, LaneWork
from helios.scheduler.cache import NO_ROW
from helios.scheduler.planned import PlannedRound, planned_round, required_programs
from helios.scheduler.requests import Resident
from helios.scheduler.residency import Residency
from helios.scheduler.snapshots import Snapshots


class AdmissionRounds:
    """Plans for the residents of a `Residency` that have just been admitted."""

    def __init__(self, geometry: Geometry, residency: Residency, snapshots: Snapshots) -> None:
        self._residency = residency
        self._snapshots = snapshots
        self._restores = geometry.history.restores
        self._programs = {Operation.INITIALIZE: required_programs(geometry, Operation.INITIALIZE)}
        if self._restores:
            for operation in (Operation.RESTORE, Operation.RESUME):
                self._programs[operation] = required_programs(geometry, operation)

    def plan(self) -> PlannedRound | None:
        """A round of the most urgent new resident's operation, with all that need the same and fit
        in one."""
        if not self._residency.admitted:
            return None
        operation: Operation | None = None
        residents: list[Resident] = []
        lanes: list[LaneWork] = []
        # Making room removes residents only behind the one it is made for.
        for resident in list(self._residency.admitted):
            needed = self.operation_for(resident)
            if operation not in (None, needed) or not self._has_pages(resident):
                continue
            operation = needed
            residents.append(resident)
            lanes.append(self._lane(resident, needed))
            if len(lanes) == self._programs[needed][-1].batch_capacity:
                break
        if operation is None:
            return None
        return planned_round(self._programs[operation], residents, lanes)

    def operation_for(self, resident: Resident) -> Operation:
        """How the resident gets its state."""
        if resident.refreshes:
            return Operation.INITIALIZE
        endpoint = resident.hold.endpoint
        if self._restores and endpoint and endpoint == resident.prompt_tokens - 1:
            return Operation.RESUME
        return Operation.INITIALIZE if resident.hold.row == NO_ROW else Operation.RESTORE

    def _has_pages(self, resident: Resident) -> bool:
        """Whether the resident has a page for the part of one that it is restored with, or gets
        one; and whether it is still here."""
        residency, endpoint = self._residency, resident.begins_at
        if resident not in residency.admitted:
            return False
        if residency.reach(resident, endpoint) < endpoint and not residency.make_room(resident):
            return False
        residency.cover(resident, endpoint)
        return True

    def _lane(self, resident: Resident, operation: Operation) -> LaneWork:
        if not resident.refreshes:
            resident.chunk_end = self._snapshots.next_stop(resident, resident.begins_at)
        progress, endpoint = resident.progress, resident.begins_at
        request = progress.request
        return LaneWork(
            resident.slot,
            resident.generation,
            endpoint,
            (),
            False,
            resident.pages,
            LaneAdmission(
                sampling=request.sampling,
                output_limit=request.output_limit,
                emitted=progress.emitted + progress.forced,
                eos_ids=request.eos_ids,
            ),
            restore_row=NO_ROW if resident.refreshes else resident.hold.row,
            pending_token=progress.tokens[endpoint] if operation is Operation.RESUME else -1,
            # All tokens so far, wherever its state begins: what a readmitted request has emitted
            # counts as it did before.
            extras=LaneExtras(history=progress.tokens) if request.sampling.looks_back else None,
        )
