"""What passes when a round's fence does: tokens, ends, publication, what is given back.

Every lane is checked before any state changes. A faulty lane fails its request, a faulty record
all requests of its round, and nothing of theirs is published. A token of a request with host stops
is reported at once, and what follows from it waits for the host's decision: `stop`, or `proceed`.
Publishing and giving back are deferred: whoever is told of tokens doesn't wait for them.
`Scheduler` is the caller.
"""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import Final

from helios.dataclass import dataclass
from helios.runtime.geometry import Geometry, Operation
from helios.runtime.rounds import (
    Alternatives,
    Completion,
    DeviceFinish,
    LaneCompletion,
    LaneWork,
)
from helios.scheduler.completion import InFlight, goes_on, lane_fault, record_fault
from helios.scheduler.counters import SchedulerCounters
from helios.scheduler.deferred import Deferred
from helios.scheduler.events import Event, Finish, PromptScored, RequestFailed, TokensEmitted
from helios.scheduler.live import LiveRequests
from helios.scheduler.planned import ADMITTING, WITHOUT_RECORD, PlannedRound
from helios.scheduler.publication import Publication
from helios.scheduler.requests import Ending, Phase, Progress, Resident
from helios.scheduler.residency import Residency
from helios.scheduler.snapshots import Snapshots

# Endings of requests that have had their last event.
_UNREPORTED: Final = (Ending.CANCELLED, Ending.STOPPED)


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A lane that was taken over, and why its request ends, if it does."""

    resident: Resident
    finish: Finish | None
    work: LaneWork


class Fences:
    """Moves residents on to what their completed rounds say."""

    def __init__(
        self,
        geometry: Geometry,
        residency: Residency,
        publication: Publication,
        snapshots: Snapshots,
        live: LiveRequests,
        counters: SchedulerCounters,
        deferred: Deferred,
    ) -> None:
        self._vocabulary_tokens = geometry.vocabulary_tokens
        self._windows = geometry.history.window_tokens > 0
        self._residency = residency
        self._publication = publication
        self._snapshots = snapshots
        self._live = live
        self._counters = counters
        self._deferred = deferred
        self._undecided: list[_Accepted] = []

    def passed(self, flight: InFlight, completion: Completion) -> list[Event]:
        """The oldest round's fence has passed with this answer."""
        planned = flight.planned
        whole = self._all_go_on(flight, completion)
        if whole is not None:
            return whole
        fault = record_fault(flight, completion)
        if fault is not None or planned.program.operation in WITHOUT_RECORD:
            return self._without_lanes(planned, fault)
        lanes = list(zip(planned.residents, planned.round.lanes, completion.lanes, strict=True))
        vocabulary = self._vocabulary_tokens
        going = [goes_on(resident, work, answer, vocabulary) for resident, work, answer in lanes]
        faults = [
            None if goes else lane_fault(*lane, vocabulary)
            for lane, goes in zip(lanes, going, strict=True)
        ]
        events: list[Event] = []
        for (resident, work, answer), goes, lane_problem in zip(lanes, going, faults, strict=True):
            resident.rounds_in_flight -= 1
            if goes:
                events.append(_one_more(resident, answer))
                if self._windows:
                    self._residency.slide(resident)
                continue
            if lane_problem is not None:
                self._fail(resident, lane_problem, events)
            elif resident.ended_on_device:
                self._counters.empty_lanes += 1
            elif resident.ending is not Ending.FAILED:
                accepted = _Accepted(resident, self._accept(resident, answer, events), work)
                reported = answer.tokens and resident.ending not in _UNREPORTED
                if reported and resident.progress.request.host_stops:
                    resident.undecided = True
                    self._undecided.append(accepted)
                else:
                    self._follow(accepted)
                continue
            if resident.phase is Phase.ENDING:
                self._settle_later(resident)
        self._counters.output_tokens += sum(going)
        return events

    def _all_go_on(self, flight: InFlight, completion: Completion) -> list[Event] | None:
        """Takes over a round all of whose lanes go on, as those of most rounds do; None, and
        nothing has changed, where one doesn't."""
        residents, lanes = flight.planned.residents, flight.planned.round.lanes
        answers = completion.lanes
        if completion.sequence != flight.sequence or len(answers) != len(lanes):
            return None
        # Of a MIXED round the last lane doesn't, so the others needn't be asked.
        if lanes[-1].tokens or not all(
            map(goes_on, residents, lanes, answers, repeat(self._vocabulary_tokens))
        ):
            return None
        events: list[Event] = []
        for resident, answer in zip(residents, answers, strict=True):
            resident.rounds_in_flight -= 1
            events.append(_one_more(resident, answer))
            if self._windows:
                self._residency.slide(resident)
        self._counters.output_tokens += len(events)
        return events

    # ------------------------------------------------------------ the host's decision

    def stop(self, progress: Progress) -> None:
        """The token that was reported last ends its request: nothing private of it is published,
        and what it holds comes back at its last fence."""
        undecided = next((u for u in self._undecided if u.resident.progress is progress), None)
        assert undecided is not None, "the host decides about a token that wasn't reported"
        self._undecided.remove(undecided)
        resident = undecided.resident
        resident.undecided = False
        self._live.retire(progress, Finish.STOP)
        self._residency.leave(resident, Ending.STOPPED)
        self._settle_later(resident)

    def proceed(self) -> None:
        """The host has stopped whom it would: the others go on, or end as their rounds said."""
        if not self._undecided:
            return
        undecided, self._undecided = self._undecided, []
        for one in undecided:
            one.resident.undecided = False
            self._follow(one)

    def _follow(self, accepted: _Accepted) -> None:
        """What follows from an accepted lane besides its events."""
        resident, work = accepted.resident, accepted.work
        if accepted.finish is not None:
            self._live.retire(resident.progress, accepted.finish)
            self._residency.finish(resident)
        if work.tokens and work.sample:
            self._deferred.add(resident, partial(self._prompt_completed, resident))
            return
        if self._windows:
            self._residency.slide(resident)
        if resident.phase is Phase.ENDING:
            self._settle_later(resident)

    def _prompt_completed(self, resident: Resident) -> None:
        # Before the window slides on: what is published keeps what it needs.
        self._publication.prompt_completed(resident)
        self._residency.slide(resident)
        self._residency.settle(resident)

    def _settle_later(self, resident: Resident) -> None:
        """The resident is ending, and this may have been its last fence."""
        self._deferred.add(resident, partial(self._residency.settle, resident))

    # ------------------------------------------------------------ lanes

    def _accept(
        self, resident: Resident, answer: LaneCompletion, events: list[Event]
    ) -> Finish | None:
        """Takes over a valid lane; why its request ends, if it does. The tokens of a request that
        was cancelled or stopped are kept to the fence, unreported, because later completions are
        checked against them."""
        progress = resident.progress
        (
            _, _, consumed, tokens, logprobs, ended, _, _, _, scores, alternatives, _, ranking,
        ) = answer  # fmt: skip
        resident.consumed = consumed
        unreported = resident.ending in _UNREPORTED
        if scores:
            # From where the chunk began: what is preempted is scored anew.
            start = consumed - len(scores) - progress.needed_from
            skipped, start = max(-start, 0), max(start, 0)
            progress.scores[start:] = scores[skipped:]
            progress.ranks[start:] = ranking.ranks[skipped:]
            progress.likeliest[start:] = ranking.alternatives[skipped:]
        if not tokens:
            return None
        if progress.scores and not progress.forced and not unreported:
            events.append(_scored(progress))
        sampled = tokens
        if progress.forced:
            tokens, logprobs, alternatives = _with_forced(progress, tokens, logprobs, alternatives)
            resident.refreshes = False
            self._counters.forced_tokens += progress.forced
            progress.forced = 0
        progress.tokens.extend(sampled)
        progress.emitted += len(tokens)
        finish = None
        if ended != DeviceFinish.RUNNING:
            resident.ended_on_device = True
            finish = Finish.EOS if ended == DeviceFinish.EOS else Finish.LIMIT
        if unreported:
            return None
        self._counters.output_tokens += len(tokens)
        request_id = progress.request.request_id
        events.append(
            TokensEmitted(request_id, tokens, logprobs, finish, progress.reused, alternatives)
        )
        return finish

    def _without_lanes(self, planned: PlannedRound, fault: str | None) -> list[Event]:
        """Passes the fence of a round without lanes to accept; a fault fails its requests."""
        events: list[Event] = []
        operation = planned.program.operation
        for resident, work in zip(planned.residents, planned.round.lanes, strict=True):
            resident.rounds_in_flight -= 1
            if fault is not None:
                self._fail(resident, fault, events)
            if operation is Operation.SNAPSHOT:
                if fault is None:
                    self._deferred.add(resident, partial(self._saved, resident, work))
                    continue
                self._snapshots.fault(work)
            elif operation in ADMITTING:
                resident.consumed = work.start
                self._residency.cache.unpin_row(resident.hold)
            self._residency.settle(resident)
        return events

    def _saved(self, resident: Resident, work: LaneWork) -> None:
        self._snapshots.fence(resident, work)
        self._residency.settle(resident)

    def _fail(self, resident: Resident, fault: str, events: list[Event]) -> None:
        """Fails a resident's request, unless it has had its last event; nothing more of it is
        published. The caller settles."""
        progress = resident.progress
        self._residency.leave(resident, Ending.FAILED)
        if self._live.holds(progress):
            self._live.retire(progress, Finish.FAILED)
            events.append(RequestFailed(progress.request.request_id, fault))


def _one_more(resident: Resident, answer: LaneCompletion) -> TokensEmitted:
    """Takes over a lane whose request goes on."""
    progress = resident.progress
    tokens = answer.tokens
    resident.consumed = answer.consumed
    progress.tokens.append(tokens[0])
    progress.emitted += 1
    return TokensEmitted(
        progress.request.request_id, tokens, answer.logprobs, None, progress.reused
    )


def _with_forced(
    progress: Progress,
    tokens: tuple[int, ...],
    logprobs: tuple[float, ...],
    alternatives: tuple[Alternatives, ...],
) -> tuple[tuple[int, ...], tuple[float, ...], tuple[Alternatives, ...]]:
    """What a lane has sampled behind the tokens that were forced, which count as generated."""
    count = progress.forced
    forced, scores = progress.tokens[-count:], progress.scores[:count]
    likeliest = progress.likeliest[:count]
    for values in (progress.scores, progress.ranks, progress.likeliest):
        values.clear()
    return (*forced, *tokens), (*scores, *logprobs), (*likeliest, *alternatives)


def _scored(progress: Progress) -> PromptScored:
    """The scores of a prompt that is complete; its last token has nothing after it to be scored."""
    told = (progress.scores, progress.ranks, progress.likeliest)
    scored = PromptScored(
        progress.request.request_id,
        tuple(progress.scores[:-1]),
        tuple(progress.ranks[:-1]),
        tuple(progress.likeliest[:-1]),
    )
    for values in told:
        values.clear()
    return scored
