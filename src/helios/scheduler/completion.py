"""Whether a completion can be true: a round's answer against what the scheduler expects of it.

Pure functions that change nothing; they return None or what is wrong. A record fault concerns
the whole round, a lane fault one request. `Scheduler.complete` checks all lanes before it acts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from helios.runtime.rounds import Completion, DeviceFinish, LaneCompletion, LaneError, LaneWork
from helios.scheduler.planned import WITHOUT_RECORD, PlannedRound, endpoint
from helios.scheduler.requests import Ending, Resident

_ROUNDING: Final = 1e-3  # a certain token's logprob may be so much above 0


@dataclass(frozen=True, slots=True)
class InFlight:
    """A round between its submission and its completion."""

    sequence: int
    planned: PlannedRound


def record_fault(flight: InFlight, completion: Completion) -> str | None:
    """What is wrong with a round's record as a whole."""
    if completion.sequence != flight.sequence:
        return f"completion {completion.sequence} came where {flight.sequence} was due"
    program = flight.planned.program
    lanes = 0 if program.operation in WITHOUT_RECORD else len(flight.planned.residents)
    if len(completion.lanes) != lanes:
        return (
            f"completion {completion.sequence} of {program.name} has {len(completion.lanes)} "
            f"lanes, not {lanes}"
        )
    return None


def lane_fault(
    resident: Resident, work: LaneWork, answer: LaneCompletion, vocabulary_tokens: int
) -> str | None:
    """What is wrong with one lane's answer. A request that has failed already expects nothing."""
    if resident.ending is Ending.FAILED:
        return None
    if answer.slot != work.slot or answer.generation != work.generation:
        return (
            f"slot {answer.slot} generation {answer.generation} answered for "
            f"slot {work.slot} generation {work.generation}"
        )
    if answer.draft_cursor != -1 or answer.model_reserved != -1:
        return f"reserved columns hold {answer.draft_cursor} and {answer.model_reserved}, not -1"
    if resident.ended_on_device:
        expected_error, consumed, emitted = LaneError.ALREADY_FINISHED, resident.consumed, 0
    else:
        expected_error, consumed, emitted = LaneError.NONE, endpoint(work), int(work.sample)
    if answer.error != expected_error:
        return f"the lane's error is {answer.error!r}, not {expected_error!r}"
    if answer.consumed != consumed:
        return f"{answer.consumed} tokens are consumed, not {consumed}"
    if len(answer.tokens) != emitted or len(answer.logprobs) != emitted:
        return f"{len(answer.tokens)} tokens were emitted, not {emitted}"
    if resident.ended_on_device:
        return None
    if len(answer.scores) != len(work.targets):
        return f"{len(answer.scores)} tokens are scored, not {len(work.targets)}"
    for score, target in zip(answer.scores, work.targets, strict=True):
        if target >= 0 and not score <= _ROUNDING:
            return f"the logprob of prompt token {target} is {score}"
    wanted = resident.top_logprobs if emitted else 0
    fault = alternatives_fault(answer, min(wanted, vocabulary_tokens))
    if fault is not None:
        return fault
    expected_finish = DeviceFinish.RUNNING
    if emitted:
        token = answer.tokens[0]
        if not 0 <= token < vocabulary_tokens:
            return f"token {token} is outside [0, {vocabulary_tokens})"
        request = resident.progress.request
        if token in request.eos_ids:
            expected_finish = DeviceFinish.EOS
        elif resident.progress.emitted + 1 == request.output_limit:
            expected_finish = DeviceFinish.LIMIT
    if answer.finish != expected_finish:
        return f"the lane's finish is {answer.finish!r}, not {expected_finish!r}"
    return None


def alternatives_fault(answer: LaneCompletion, wanted: int) -> str | None:
    """What is wrong with the likeliest tokens that a lane reports; `wanted` is 0 where it emits
    nothing, or its request asked for none."""
    due = int(wanted > 0)
    if len(answer.alternatives) != due:
        return f"alternatives of {len(answer.alternatives)} tokens came, {due} are due"
    for tokens, logprobs in answer.alternatives:
        if len(tokens) != wanted or len(set(tokens)) != wanted:
            return f"{len(tokens)} alternatives came ({len(set(tokens))} different), not {wanted}"
        before = _ROUNDING
        for logprob in logprobs:
            if not logprob <= before:
                return f"alternatives' logprobs are {list(logprobs)}"
            before = logprob
    return None
