"""What is counted of a round when it has been submitted. `Scheduler.begin` is the caller."""

from __future__ import annotations

from helios.runtime.geometry import Operation
from helios.scheduler.counters import SchedulerCounters
from helios.scheduler.planned import PROMPTS, WITHOUT_RECORD, PlannedRound

_DECODING = (Operation.DECODE, Operation.MIXED)


def count_submission(counters: SchedulerCounters, planned: PlannedRound, in_flight: int) -> None:
    """Counts a round, with which `in_flight` are."""
    operation = planned.program.operation
    if operation in PROMPTS:
        for resident, lane in zip(planned.residents, planned.round.lanes, strict=True):
            if not resident.refreshes:
                counters.prefilled_tokens += len(lane.tokens)
    constrained = [resident.progress.request.constrained for resident in planned.residents]
    if operation in WITHOUT_RECORD or not any(constrained):
        return
    counters.constrained_max_inflight = max(counters.constrained_max_inflight, in_flight)
    if operation in _DECODING:
        # The last lane of a MIXED round is a prompt's.
        decoding = constrained if operation is Operation.DECODE else constrained[:-1]
        counters.mixed_grammar_decode_steps += any(decoding) and not all(decoding)
