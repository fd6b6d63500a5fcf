"""A planned round: its program, its lanes, their residents, and where it leads them.

Data and pure functions, and `advance`, which moves the residents on once the round has been
submitted. Who makes such rounds: `cohorts`, for prompts and running outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from helios.errors import ContractError
from helios.runtime.geometry import Geometry, Operation, ProgramInfo
from helios.runtime.rounds import LaneWork, Round
from helios.scheduler.requests import Phase, Resident

# Operations that give a new resident its state.
ADMITTING: Final = frozenset({Operation.INITIALIZE, Operation.RESTORE, Operation.RESUME})
# Operations whose fence is all that comes of them: they have no completion record.
WITHOUT_RECORD: Final = ADMITTING | {Operation.SNAPSHOT}
# Operations that consume chunks of prompts.
PROMPTS: Final = frozenset({Operation.PREFILL, Operation.SCORED_PREFILL, Operation.MIXED})


class PlannedRound(NamedTuple):
    """A round with its program and the resident of each of its lanes. `packed_tokens` counts what
    its lanes consume, or the lanes where they consume nothing."""

    program: ProgramInfo
    round: Round
    residents: tuple[Resident, ...]
    packed_tokens: int


def planned_round(
    programs: Sequence[ProgramInfo],
    residents: Sequence[Resident],
    lanes: Sequence[LaneWork],
    packed_tokens: int = 0,
) -> PlannedRound:
    """The round in the smallest of an operation's programs that fits it. `packed_tokens` is 0
    where no more than a token a lane is consumed."""
    program = smallest(programs, len(lanes), packed_tokens)
    wanted = [resident.top_logprobs for resident in residents]
    top_logprobs = tuple(wanted) if any(wanted) else ()
    return PlannedRound(
        program,
        Round(program.index, tuple(lanes), top_logprobs),
        tuple(residents),
        packed_tokens or len(lanes),
    )


def smallest(programs: Sequence[ProgramInfo], lanes: int, packed_tokens: int = 0) -> ProgramInfo:
    """The first of `programs` that has room for the lanes and their packed tokens."""
    for program in programs:
        if program.batch_capacity >= lanes and (
            not packed_tokens or program.packed_token_capacity >= packed_tokens
        ):
            return program
    raise AssertionError(f"no program has room for {lanes} lanes and {packed_tokens} tokens")


def required_programs(geometry: Geometry, operation: Operation) -> tuple[ProgramInfo, ...]:
    """The operation's programs, of which the last has the largest extents of all. Raises
    ContractError where there is none."""
    programs = geometry.of(operation)
    if not programs:
        raise ContractError(
            f"no {operation.name} program is selected",
            where=f"target {geometry.target}",
            remedy="Prepare the core with programs of every text operation",
        )
    return programs


def advance(planned: PlannedRound, sequence: int) -> None:
    """Moves the residents of a round to where it leads, when it has been submitted."""
    operation = planned.program.operation
    if operation is Operation.DECODE:
        _advance_decoding(planned, sequence)
        return
    for resident, lane in zip(planned.residents, planned.round.lanes, strict=True):
        resident.rounds_in_flight += 1
        if operation is Operation.SNAPSHOT:
            if resident.phase is Phase.SAVING:
                resident.phase = Phase.PREFILLING
            continue
        resident.last_turn = sequence
        if operation in ADMITTING:
            resident.planned_consumed = lane.start
            resumed = operation is Operation.RESUME
            resident.phase = Phase.DECODING if resumed else Phase.PREFILLING
            continue
        resident.planned_consumed = endpoint(lane)
        if lane.sample:
            resident.planned_emitted += 1
            limit = resident.progress.request.output_limit
            reached = resident.planned_emitted == limit
            resident.phase = Phase.EXHAUSTED if reached else Phase.DECODING


def _advance_decoding(planned: PlannedRound, sequence: int) -> None:
    for resident in planned.residents:
        resident.rounds_in_flight += 1
        resident.last_turn = sequence
        resident.planned_consumed += 1
        resident.planned_emitted += 1
        if resident.planned_emitted == resident.progress.request.output_limit:
            resident.phase = Phase.EXHAUSTED


def endpoint(lane: LaneWork) -> int:
    """Tokens of the request that are consumed after a prompt's chunk or a DECODE lane."""
    return lane.start + (len(lane.tokens) or 1)
