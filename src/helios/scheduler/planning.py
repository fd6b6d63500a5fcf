"""Which round comes next: its program and its lanes.

New residents are initialised first, all together. After that PREFILL and DECODE rounds take
turns, so that neither prompts nor running outputs wait for the other. The planner takes the pages
that the round needs; the residents themselves are moved on by `advance`, once the round has been
submitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from operator import attrgetter

from helios.errors import ContractError
from helios.runtime.geometry import Geometry, Operation, ProgramInfo
from helios.runtime.rounds import LaneAdmission, LaneWork, Round
from helios.scheduler.options import SchedulerOptions
from helios.scheduler.requests import Phase, Resident
from helios.scheduler.residency import Residency

_BY_LAST_TURN = attrgetter("last_turn", "order")


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """A round with its program and the resident of each of its lanes."""

    program: ProgramInfo
    round: Round
    residents: tuple[Resident, ...]


class RoundPlanner:
    """Plans over the residents of a `Residency` with the programs of a geometry."""

    def __init__(self, geometry: Geometry, residency: Residency, options: SchedulerOptions) -> None:
        self._residency = residency
        self._initialize = _programs(geometry, Operation.INITIALIZE)
        self._prefill = _programs(geometry, Operation.PREFILL)
        self._decode = _programs(geometry, Operation.DECODE)
        largest = self._prefill[-1].packed_token_capacity
        self._chunk_tokens = min(options.prefill_chunk_tokens or largest, largest)
        self._prefilled_last = False

    def plan(self) -> PlannedRound | None:
        """The next round, or None where no resident can go on before a fence."""
        planned = self._plan_initialize()
        if planned is not None:
            return planned
        if self._prefilled_last:
            planned = self._plan_decode() or self._plan_prefill()
        else:
            planned = self._plan_prefill() or self._plan_decode()
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
        return _planned(self._initialize, residents, lanes, packed_tokens=0)

    def _plan_prefill(self) -> PlannedRound | None:
        """Packs prompts, oldest first, up to the chunk budget and the largest program's lanes."""
        residency = self._residency
        tokens_left = self._chunk_tokens
        lanes_left = self._prefill[-1].batch_capacity
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
        return _planned(self._prefill, residents, lanes, self._chunk_tokens - tokens_left)

    def _plan_decode(self) -> PlannedRound | None:
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
        largest = self._decode[-1].batch_capacity
        if len(ready) > largest:
            ready = sorted(ready, key=_BY_LAST_TURN)[:largest]
        lanes = [
            LaneWork(r.slot, r.generation, r.planned_consumed, (), True, r.pages) for r in ready
        ]
        return _planned(self._decode, ready, lanes, packed_tokens=0)


def advance(planned: PlannedRound, sequence: int) -> None:
    """Moves the residents of a round to where it leads, when it has been submitted."""
    operation = planned.program.operation
    for resident, lane in zip(planned.residents, planned.round.lanes, strict=True):
        resident.rounds_in_flight += 1
        resident.last_turn = sequence
        if operation is Operation.INITIALIZE:
            resident.phase = Phase.PREFILLING
            continue
        resident.planned_consumed = endpoint(lane)
        if lane.sample:
            resident.planned_emitted += 1
            limit = resident.progress.request.output_limit
            reached = resident.planned_emitted == limit
            resident.phase = Phase.EXHAUSTED if reached else Phase.DECODING


def endpoint(lane: LaneWork) -> int:
    """Tokens of the request that are consumed after a PREFILL or DECODE lane."""
    return lane.start + (len(lane.tokens) or 1)


def _planned(
    programs: tuple[ProgramInfo, ...],
    residents: list[Resident],
    lanes: list[LaneWork],
    packed_tokens: int,
) -> PlannedRound:
    """The round in the smallest program that fits it."""
    program = next(
        p
        for p in programs
        if p.batch_capacity >= len(lanes)
        and (not packed_tokens or p.packed_token_capacity >= packed_tokens)
    )
    return PlannedRound(program, Round(program.index, tuple(lanes)), tuple(residents))


def _programs(geometry: Geometry, operation: Operation) -> tuple[ProgramInfo, ...]:
    """The operation's programs; the last one has the largest extents of all."""
    programs = geometry.of(operation)
    if not programs:
        raise ContractError(
            f"no {operation.name} program is selected",
            where=f"target {geometry.target}",
            remedy="Prepare the core with programs of every text operation",
        )
    return programs


def _admission(resident: Resident) -> LaneAdmission:
    request = resident.progress.request
    return LaneAdmission(
        sampling=request.sampling,
        output_limit=request.output_limit,
        emitted=resident.progress.emitted,
        eos_ids=request.eos_ids,
    )
