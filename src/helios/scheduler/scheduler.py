"""The scheduler: takes requests, makes rounds, accepts completions, reports events.

Pure host code: it knows the geometry, not the device. The worker calls it in this order, each
turn: `submit` and `cancel` for what arrived; `plan` while `can_plan`, and `begin` for each round
once the runtime has taken it; `complete` with the oldest round's completion. Planning needs the
state at submission alone, so a second round can be planned while the first one runs.
"""

from __future__ import annotations

from collections import deque

from helios.errors import AdmissionError, ExecutionError
from helios.runtime.geometry import Geometry
from helios.runtime.rounds import Completion, DeviceFinish, LaneCompletion
from helios.scheduler.admission import check_request
from helios.scheduler.completion import InFlight, lane_fault, record_fault
from helios.scheduler.counters import SchedulerCounters
from helios.scheduler.events import Event, Finish, RequestFailed, TokensEmitted
from helios.scheduler.options import SchedulerOptions
from helios.scheduler.pages import PagePool
from helios.scheduler.planned import PlannedRound, advance
from helios.scheduler.planning import RoundPlanner
from helios.scheduler.requests import Ending, Phase, Progress, Request, Resident
from helios.scheduler.residency import Residency
from helios.scheduler.slots import SlotPool


class Scheduler:
    """Owns every live request from `submit` to its last event. Not thread-safe."""

    def __init__(self, geometry: Geometry, options: SchedulerOptions | None = None) -> None:
        self.geometry = geometry
        self.options = options or SchedulerOptions()
        self.counters = SchedulerCounters()
        self.failure: str | None = None
        self.pages = PagePool(geometry.cache_pages, geometry.page_tokens)
        self.slots = SlotPool(geometry.request_slots)
        self._residency = Residency(self.slots, self.pages, self.counters)
        self._planner = RoundPlanner(geometry, self._residency, self.options)
        self._in_flight: deque[InFlight] = deque()
        self._frames = min(self.options.frames_in_flight, geometry.frames)
        self._arrivals = 0
        # Requests whose last event is still to come.
        self._live: dict[int, Progress] = {}

    @property
    def running(self) -> int:
        """Requests that hold a slot."""
        return len(self._residency.residents)

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot."""
        return len(self._residency.waiting)

    @property
    def frames_in_flight(self) -> int:
        """Rounds that have been submitted and not completed."""
        return len(self._in_flight)

    @property
    def idle(self) -> bool:
        """Whether no request is live and nothing is held for one."""
        return not (self._residency.residents or self._residency.waiting)

    # ------------------------------------------------------------ requests

    def submit(self, request: Request) -> None:
        """Queues a request. Raises AdmissionError where it can't be served or the queue is full,
        ExecutionError after a failure of the device."""
        if self.failure is not None:
            raise ExecutionError(
                f"the model has failed: {self.failure}",
                where=f"request {request.request_id}",
                remedy="Start the server again",
            )
        try:
            self._check(request)
        except AdmissionError:
            self.counters.rejected += 1
            raise
        self._arrivals += 1
        progress = Progress(request, self._arrivals, list(request.prompt))
        self._live[request.request_id] = progress
        self._residency.waiting.append(progress)
        self.counters.submitted += 1
        self.counters.prompt_tokens += len(request.prompt)

    def _check(self, request: Request) -> None:
        check_request(request, self.geometry)
        where = f"request {request.request_id}"
        if request.request_id in self._live:
            raise AdmissionError(
                "a live request has this id", where=where, remedy="Count the ids upwards"
            )
        # Counted over queue and slots together: a burst arrives before any of it can be given a
        # slot, and a slot may still be held to its fence by a request that has had its last event.
        if len(self._live) >= self.options.queue_limit + self.slots.slots:
            raise AdmissionError(
                f"{len(self._live)} requests run or wait already",
                where=where,
                remedy="Try again later",
            )

    def cancel(self, request_id: int) -> list[Event]:
        """Ends a request wherever it is; none of its tokens are reported any more. What it holds
        comes back at its last fence. An unknown or ended request is ignored."""
        progress = self._live.get(request_id)
        if progress is None:
            return []
        resident = self._resident_of(progress)
        if resident is None:
            self._residency.waiting.remove(progress)
        else:
            self._residency.end(resident, Ending.CANCELLED)
        self._retire(progress, Finish.CANCELLED)
        return [TokensEmitted(request_id, (), (), Finish.CANCELLED)]

    def cancel_all(self) -> list[Event]:
        """Cancels every live request."""
        return [event for request_id in list(self._live) for event in self.cancel(request_id)]

    def _resident_of(self, progress: Progress) -> Resident | None:
        for resident in self._residency.residents:
            if resident.progress is progress:
                return resident
        return None

    def _retire(self, progress: Progress, finish: Finish) -> None:
        del self._live[progress.request.request_id]
        self.counters.finished[finish] += 1

    # ------------------------------------------------------------ rounds

    def can_plan(self) -> bool:
        """Whether a frame is free for another round."""
        return self.failure is None and len(self._in_flight) < self._frames

    def plan(self) -> PlannedRound | None:
        """The next round, or None where nothing can go on before a fence or an arrival. A planned
        round must be submitted and begun before the next call of any other method."""
        assert self.can_plan(), "a round was planned without a free frame"
        residency = self._residency
        while residency.can_admit():
            residency.admit()
        return self._planner.plan(len(self._in_flight))

    def begin(self, planned: PlannedRound, sequence: int) -> None:
        """Notes that the runtime has taken the round as `sequence`."""
        advance(planned, sequence)
        self._in_flight.append(InFlight(sequence, planned))
        for lane in planned.round.lanes:
            self.counters.prefilled_tokens += len(lane.tokens)

    def complete(self, completion: Completion) -> list[Event]:
        """Accepts the oldest round's completion. Every lane is checked before any state changes;
        a faulty lane fails its request, a faulty record all requests of the round."""
        flight = self._in_flight.popleft()
        planned = flight.planned
        self._planner.learn(planned, completion)
        fault = record_fault(flight, completion)
        if fault is not None:
            return self._fence(planned, fault)
        if not completion.lanes:
            return self._fence(planned, None)
        vocabulary = self.geometry.vocabulary_tokens
        lanes = list(zip(planned.residents, planned.round.lanes, completion.lanes, strict=True))
        faults = [lane_fault(*lane, vocabulary) for lane in lanes]
        events: list[Event] = []
        for (resident, _, answer), lane_problem in zip(lanes, faults, strict=True):
            resident.rounds_in_flight -= 1
            if lane_problem is not None:
                self._fail(resident, lane_problem, events)
            elif resident.ended_on_device:
                self.counters.empty_lanes += 1
            elif resident.ending is not Ending.FAILED:
                self._accept(resident, answer, events)
            self._residency.settle(resident)
        return events

    def _accept(self, resident: Resident, answer: LaneCompletion, events: list[Event]) -> None:
        """Takes over a valid lane; a cancelled request's tokens are kept to the fence, unreported,
        because later completions are checked against them."""
        progress = resident.progress
        resident.consumed = answer.consumed
        if not answer.tokens:
            return
        progress.tokens.extend(answer.tokens)
        progress.emitted += len(answer.tokens)
        finish = None
        if answer.finish != DeviceFinish.RUNNING:
            resident.ended_on_device = True
            finish = Finish.EOS if answer.finish == DeviceFinish.EOS else Finish.LIMIT
        if resident.ending is Ending.CANCELLED:
            return
        self.counters.output_tokens += len(answer.tokens)
        events.append(
            TokensEmitted(progress.request.request_id, answer.tokens, answer.logprobs, finish)
        )
        if finish is not None:
            self._retire(progress, finish)
            resident.phase, resident.ending = Phase.ENDING, Ending.FINISHED

    def _fence(self, planned: PlannedRound, fault: str | None) -> list[Event]:
        """Passes the fence of a round without lanes to accept; a fault fails its requests."""
        events: list[Event] = []
        for resident in planned.residents:
            resident.rounds_in_flight -= 1
            if fault is not None:
                self._fail(resident, fault, events)
            self._residency.settle(resident)
        return events

    def _fail(self, resident: Resident, fault: str, events: list[Event]) -> None:
        """Fails a resident's request, unless it has had its last event."""
        progress = resident.progress
        resident.phase, resident.ending = Phase.ENDING, Ending.FAILED
        if self._live.get(progress.request.request_id) is progress:
            self._retire(progress, Finish.FAILED)
            events.append(RequestFailed(progress.request.request_id, fault))

    def fail(self, message: str) -> list[Event]:
        """The device has failed: fails every live request and takes no more. Nothing is reused,
        so the rounds in flight are forgotten."""
        self.failure = message
        events: list[Event] = [RequestFailed(request_id, message) for request_id in self._live]
        for progress in list(self._live.values()):
            self._retire(progress, Finish.FAILED)
        self._in_flight.clear()
        self._residency.waiting.clear()
        for resident in list(self._residency.residents):
            resident.rounds_in_flight = 0
            self._residency.end(resident, Ending.FAILED)
        return events

    # ------------------------------------------------------------ books

    def check_books(self) -> None:
        """Asserts that nothing is lost or held twice: slots, pages, order, requests, fences."""
        residency = self._residency
        residency.check_books()
        in_flight: dict[int, int] = {}
        for flight in self._in_flight:
            for resident in flight.planned.residents:
                in_flight[id(resident)] = in_flight.get(id(resident), 0) + 1
        for resident in residency.residents:
            assert resident.rounds_in_flight == in_flight.pop(id(resident), 0)
        assert not in_flight, "a round in flight has a lane that nobody holds"
        going_on = list(residency.waiting)
        going_on += [
            r.progress
            for r in residency.residents
            if r.phase is not Phase.ENDING or r.ending is Ending.PREEMPTED
        ]
        assert {id(p) for p in going_on} == {id(p) for p in self._live.values()}
        assert len(going_on) == len(self._live)
        if self.idle:
            assert self.pages.free == self.pages.pages
            assert self.slots.free == self.slots.slots
