"""Whether a completion can be true: a round's answer against what the scheduler expects of it.

Pure functions that change nothing; they return None or what is wrong. A record fault concerns
the whole round: it isn't this round's answer, or a row in it is somebody else's. A lane fault
concerns one request. `Scheduler.complete` checks all lanes before it acts.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from helios.runtime.rounds import (
    Alternatives,
    Completion,
    DeviceFinish,
    LaneCompletion,
    LaneError,
    LaneWork,
    Ranking,
)
from helios.scheduler.planned import WITHOUT_RECORD, PlannedRound, endpoint
from helios.scheduler.requests import Ending, Resident

_ROUNDING: Final = 1e-3  # a certain token's logprob may be so much above 0
# The fields from `finish` on of a lane that says nothing but its token.
FINISH: Final = LaneCompletion._fields.index("finish")
# The same fields of a lane's work and of its answer, read by their places.
SLOT: Final = 0
GENERATION: Final = 1
_NOTHING_ELSE: Final = LaneCompletion(
    0, 0, 0, (), (), DeviceFinish.RUNNING, LaneError.NONE, draft_cursor=-1, model_reserved=-1
)[FINISH:]
_WHOSE: Final = itemgetter(0, 1)  # both


class InFlight(NamedTuple):
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
    due = list(map(_WHOSE, flight.planned.round.lanes[:lanes]))
    answered = list(map(_WHOSE, completion.lanes))
    if due != answered:
        for (slot, generation), (own_slot, own_generation) in zip(answered, due, strict=True):
            if (slot, generation) != (own_slot, own_generation):
                return (
                    f"slot {slot} generation {generation} answered for "
                    f"slot {own_slot} generation {own_generation}"
                )
    return None


def goes_on(
    resident: Resident, work: LaneWork, answer: LaneCompletion, vocabulary_tokens: int
) -> bool:
    """Whether a lane has, without any fault, one more token of a request that goes on, and nothing
    else follows from it. Nearly all lanes do, so this is asked before `lane_fault`."""
    if (
        answer[SLOT] != work[SLOT]
        or answer[GENERATION] != work[GENERATION]
        or answer[FINISH:] != _NOTHING_ELSE
        or resident.ending is not None
        or resident.ended_on_device
        or resident.top_logprobs
        or work.tokens
        or not work.sample
        or answer.consumed != work.start + 1
        or len(answer.tokens) != 1
        or len(answer.logprobs) != 1
    ):
        return False
    progress = resident.progress
    request = progress.request
    token = answer.tokens[0]
    return (
        0 <= token < vocabulary_tokens
        and token not in request.eos_ids
        and progress.emitted + 1 < request.output_limit
        and not request.host_stops
    )


def lane_fault(
    resident: Resident, work: LaneWork, answer: LaneCompletion, vocabulary_tokens: int
) -> str | None:
    """What is wrong with one lane's answer. A request that has failed already expects nothing."""
    if resident.ending is Ending.FAILED:
        return None
    (
        _, _, end, tokens, logprobs, finish, error, cursor, reserved, scores,
        alternatives, fault, ranking,
    ) = answer  # fmt: skip
    if fault:
        return fault
    if cursor != -1 or reserved != -1:
        return f"reserved columns hold {cursor} and {reserved}, not -1"
    ended = resident.ended_on_device
    if ended:
        expected_error, consumed, emitted = LaneError.ALREADY_FINISHED, resident.consumed, 0
    else:
        expected_error, consumed, emitted = LaneError.NONE, endpoint(work), int(work.sample)
    if error != expected_error:
        return f"the lane's error is {error!r}, not {expected_error!r}"
    if end != consumed:
        return f"{end} tokens are consumed, not {consumed}"
    if len(tokens) != emitted or len(logprobs) != emitted:
        return f"{len(tokens)} tokens were emitted, not {emitted}"
    if ended:
        return None
    if scores or work.targets:
        asked = resident.progress.scored_top_logprobs
        problem = _score_fault(scores, work.targets) or ranking_fault(
            ranking, work.targets, min(asked, vocabulary_tokens)
        )
        if problem is not None:
            return problem
    wanted = resident.top_logprobs if emitted else 0
    if wanted or alternatives:
        problem = alternatives_fault(alternatives, min(wanted, vocabulary_tokens))
        if problem is not None:
            return problem
    expected_finish = DeviceFinish.RUNNING
    if emitted:
        token = tokens[0]
        if not 0 <= token < vocabulary_tokens:
            return f"token {token} is outside [0, {vocabulary_tokens})"
        progress = resident.progress
        request = progress.request
        if token in request.eos_ids:
            expected_finish = DeviceFinish.EOS
        elif progress.emitted + progress.forced + 1 == request.output_limit:
            expected_finish = DeviceFinish.LIMIT
    if finish != expected_finish:
        return f"the lane's finish is {finish!r}, not {expected_finish!r}"
    return None


def _score_fault(scores: Sequence[float], targets: Sequence[int]) -> str | None:
    if len(scores) != len(targets):
        return f"{len(scores)} tokens are scored, not {len(targets)}"
    for score, target in zip(scores, targets, strict=True):
        if target >= 0 and not score <= _ROUNDING:
            return f"the logprob of prompt token {target} is {score}"
    return None


def ranking_fault(ranking: Ranking, targets: Sequence[int], wanted: int) -> str | None:
    """What is wrong with the places of scored tokens, which only some programs report, and with the
    likeliest tokens there, of which `wanted` are due."""
    ranks, alternatives = ranking
    if len(ranks) != len(targets) and (ranks or wanted):
        return f"{len(ranks)} tokens have a rank, not {len(targets)}"
    if len(alternatives) != (len(targets) if wanted else 0):
        return f"alternatives of {len(alternatives)} scored tokens came"
    for target, rank in zip(targets, ranks, strict=False):
        if (rank > 0) != (target >= 0):
            return f"the rank of prompt token {target} is {rank}"
    for target, rank, likeliest in zip(targets, ranks, alternatives, strict=False):
        problem = alternatives_fault((likeliest,), wanted) if target >= 0 else None
        if problem is None and 0 < rank <= wanted and likeliest.tokens[rank - 1] != target:
            problem = f"prompt token {target} of rank {rank} isn't there among the likeliest"
        if problem is not None:
            return problem
    return None


def alternatives_fault(reported: Sequence[Alternatives], wanted: int) -> str | None:
    """What is wrong with the likeliest tokens that a lane reports; `wanted` is 0 where it emits
    nothing, or its request asked for none."""
    due = int(wanted > 0)
    if len(reported) != due:
        return f"alternatives of {len(reported)} tokens came, {due} are due"
    for tokens, logprobs in reported:
        if len(tokens) != wanted or len(set(tokens)) != wanted:
            return f"{len(tokens)} alternatives came ({len(set(tokens))} different), not {wanted}"
        before = _ROUNDING
        for logprob in logprobs:
            if not logprob <= before:
                return f"alternatives' logprobs are {list(logprobs)}"
            before = logprob
    return None
