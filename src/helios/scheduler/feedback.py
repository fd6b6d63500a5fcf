"""What has to be known before another round may be planned: the completion barriers.

Two rounds are in flight in steady state. Each exception follows from data: the inputs of the
program to be used (`ProgramInfo.host_fed`), a lane's last operation, its request's host stops or
grammar, and whether a cost that a choice rests on has been measured. Pure functions; `Cohorts` asks
the first ones for each lane, `RoundPlanner` and `Turns` the others for a round.
"""

from __future__ import annotations

from collections.abc import Iterable

from helios.runtime.geometry import ProgramInfo
from helios.scheduler.costs import CostModel
from helios.scheduler.requests import Phase, Resident


def awaits_first_token(resident: Resident) -> bool:
    """Whether the lane's last round changed its phase with an outcome that isn't known: the last
    chunk of its prompt, whose token may be the request's last. Operations without a completion
    record (INITIALIZE, RESTORE, RESUME, SNAPSHOT) have no outcome to wait for."""
    return (
        resident.planned_consumed == resident.prompt_tokens
        and resident.planned_emitted != resident.progress.emitted
    )


def awaits_feed(resident: Resident, program: ProgramInfo) -> bool:
    """Whether the program has inputs that the host learns only from the lane's rounds in flight."""
    return program.host_fed and resident.rounds_in_flight > 0


def one_round_at_a_time(residents: Iterable[Resident]) -> bool:
    """Whether the host decides after each token of some running request if it goes on, or what may
    follow."""
    return any(
        (resident.progress.request.host_stops or resident.progress.request.constrained)
        and resident.phase is not Phase.ENDING
        for resident in residents
    )


def awaits_cost(costs: CostModel, program: ProgramInfo, outstanding: int) -> bool:
    """Whether a choice that rests on the program's cost must wait: it is unknown or stale, and
    rounds are in flight. The program is then measured alone."""
    return outstanding > 0 and not costs.fresh(program.index)
