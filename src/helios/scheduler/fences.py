"""What passes when a round's fence does: tokens, ends, publication, what is given back.

Every lane is checked before any state changes. A faulty lane fails its request, a faulty record
all requests of its round, and nothing of theirs is published. `Scheduler.complete` is the caller.
"""

from __future__ import annotations

from helios.runtime.geometry import Geometry, Operation
from helios.runtime.rounds import Completion, DeviceFinish, LaneCompletion
from helios.scheduler.completion import InFlight, lane_fault, record_fault
from helios.scheduler.counters import SchedulerCounters
from helios.scheduler.events import Event, Finish, PromptScored, RequestFailed, TokensEmitted
from helios.scheduler.live import LiveRequests
from helios.scheduler.planned import ADMITTING, WITHOUT_RECORD, PlannedRound
from helios.scheduler.publication import Publication
from helios.scheduler.requests import Ending, Phase, Progress, Resident
from helios.scheduler.residency import Residency
from helios.scheduler.snapshots import Snapshots


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
    ) -> None:
        self._vocabulary_tokens = geometry.vocabulary_tokens
        self._windows = geometry.history.window_tokens > 0
        self._residency = residency
        self._publication = publication
        self._snapshots = snapshots
        self._live = live
        self._counters = counters

    def passed(self, flight: InFlight, completion: Completion) -> list[Event]:
        """The oldest round's fence has passed with this answer."""
        planned = flight.planned
        fault = record_fault(flight, completion)
        if fault is not None or planned.program.operation in WITHOUT_RECORD:
            return self._without_lanes(planned, fault)
        vocabulary = self._vocabulary_tokens
        lanes = list(zip(planned.residents, planned.round.lanes, completion.lanes, strict=True))
        faults = [lane_fault(*lane, vocabulary) for lane in lanes]
        events: list[Event] = []
        for (resident, work, answer), lane_problem in zip(lanes, faults, strict=True):
            resident.rounds_in_flight -= 1
            if lane_problem is not None:
                self._fail(resident, lane_problem, events)
            elif resident.ended_on_device:
                self._counters.empty_lanes += 1
            elif resident.ending is not Ending.FAILED:
                self._accept(resident, answer, events)
                # Before the window slides on: what is published keeps what it needs.
                if work.tokens and work.sample:
                    self._publication.prompt_completed(resident)
                if self._windows:
                    self._residency.slide(resident)
            if resident.phase is Phase.ENDING:
                self._residency.settle(resident)
        return events

    def _accept(self, resident: Resident, answer: LaneCompletion, events: list[Event]) -> None:
        """Takes over a valid lane; a cancelled request's tokens are kept to the fence, unreported,
        because later completions are checked against them."""
        progress = resident.progress
        _, _, consumed, tokens, logprobs, ended, _, _, _, scores, _ = answer
        resident.consumed = consumed
        cancelled = resident.ending is Ending.CANCELLED
        if scores:
            # From where the chunk began: a preempted prompt is scored anew.
            progress.scores[consumed - len(scores) :] = scores
        if not tokens:
            return
        if progress.scores and not cancelled:
            events.append(_scored(progress))
        progress.tokens.extend(tokens)
        progress.emitted += len(tokens)
        finish = None
        if ended != DeviceFinish.RUNNING:
            resident.ended_on_device = True
            finish = Finish.EOS if ended == DeviceFinish.EOS else Finish.LIMIT
        if cancelled:
            return
        self._counters.output_tokens += len(tokens)
        request_id = progress.request.request_id
        events.append(TokensEmitted(request_id, tokens, logprobs, finish, progress.reused))
        if finish is not None:
            self._live.retire(progress, finish)
            self._residency.finish(resident)

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
                    self._snapshots.fence(resident, work)
                else:
                    self._snapshots.fault(work)
            elif operation in ADMITTING:
                resident.consumed = work.start
                self._residency.cache.unpin_row(resident.hold)
            self._residency.settle(resident)
        return events

    def _fail(self, resident: Resident, fault: str, events: list[Event]) -> None:
        """Fails a resident's request, unless it has had its last event; nothing more of it is
        published. The caller settles."""
        progress = resident.progress
        self._residency.leave(resident, Ending.FAILED)
        if self._live.holds(progress):
            self._live.retire(progress, Finish.FAILED)
            events.append(RequestFailed(progress.request.request_id, fault))


def _scored(progress: Progress) -> PromptScored:
    """The scores of a prompt that is complete; its last token has nothing after it to be scored."""
    scores = tuple(progress.scores[:-1])
    progress.scores.clear()
    return PromptScored(progress.request.request_id, scores)
