"""The scheduler: takes requests, makes rounds, accepts completions, reports events.

Pure host code: it knows the geometry, not the device. The worker calls it in this order, each
turn: `submit` and `cancel` for what arrived; `plan` while `can_plan`, and `begin` for each round
once the runtime has taken it; `complete` with the oldest round's completion. Planning needs the
state at submission alone, so a second round can be planned while the first one runs. A request
with `host_stops` may be ended by `stop` between `complete` and whatever is called next. What a
completion has left to be published or given back is done by `settle`, for which a moment is chosen
where nobody waits, or by whatever depends on it.
"""

from __future__ import annotations

from array import array
from collections import deque

from helios.errors import AdmissionError, ExecutionError
from helios.runtime.geometry import Geometry, Operation
from helios.runtime.rounds import Completion
from helios.scheduler.admission import can_reuse, check_request
from helios.scheduler.cache import PagePool, PrefixCache
from helios.scheduler.completion import InFlight
from helios.scheduler.costs import CostModel
from helios.scheduler.counters import SchedulerCounters
from helios.scheduler.deferred import Deferred
from helios.scheduler.events import Event, Finish, RequestFailed, TokensEmitted
from helios.scheduler.fences import Fences
from helios.scheduler.fetching import Fetching
from helios.scheduler.forcing import Forcing
from helios.scheduler.integrity import IntegrityError, IntegrityReport, inspect
from helios.scheduler.live import LiveRequests
from helios.scheduler.options import SchedulerOptions
from helios.scheduler.planned import ADMITTING, PROMPTS, PlannedRound, advance
from helios.scheduler.planning import RoundPlanner
from helios.scheduler.publication import Publication
from helios.scheduler.ranking import rank_of
from helios.scheduler.requests import Ending, Progress, Request
from helios.scheduler.residency import Residency
from helios.scheduler.second_tier import SecondTier
from helios.scheduler.siblings import Siblings
from helios.scheduler.slots import SlotPool
from helios.scheduler.snapshots import Snapshots
from helios.scheduler.submissions import count_submission
from helios.scheduler.waiting import Waiting


class Scheduler:
    """Owns every live request from `submit` to its last event. Not thread-safe."""

    def __init__(
        self,
        geometry: Geometry,
        options: SchedulerOptions | None = None,
        tier: SecondTier | None = None,
    ) -> None:
        self.geometry = geometry
        self.options = options or SchedulerOptions()
        self.counters = SchedulerCounters()
        self.failure: str | None = None
        self.slots = SlotPool(geometry.request_slots)
        reuse = self.options.prefix_reuse and can_reuse(geometry)
        self._tier = tier if reuse else None
        self.cache = PrefixCache(
            geometry.cache_pages, geometry.page_tokens, geometry.snapshot_rows, geometry.history
        )
        if self._tier is not None:
            self.cache.listen(self._tier)
        publication = Publication(self.cache, reuse=reuse)
        self._deferred = Deferred()
        self._snapshots = Snapshots(geometry, self.cache, publication, self._deferred)
        self._residency = Residency(
            geometry,
            self.slots,
            self.cache,
            Waiting(
                self.cache,
                None if self._tier is None else Fetching(self.cache, self._tier),
                reuse=reuse,
            ),
            publication,
            self._snapshots,
            self.counters,
            self._deferred,
        )
        self._live = LiveRequests(self.counters)
        self._fences = Fences(
            geometry,
            self._residency,
            publication,
            self._snapshots,
            self._live,
            self.counters,
            self._deferred,
        )
        self.costs = CostModel(self.counters.round_ran)
        self._planner = RoundPlanner(
            geometry, self._residency, self._snapshots, self.options, self.costs
        )
        self.forcing = Forcing(geometry, self._residency, self._live)
        self._in_flight: deque[InFlight] = deque()
        self._siblings = Siblings(self._live, self._residency, self._in_flight, shares=reuse)
        self._frames = min(self.options.frames_in_flight, geometry.frames)
        self._arrivals = 0
        self._rounds = 0

    @property
    def pages(self) -> PagePool:
        """Which cache pages are free."""
        return self.cache.pages

    @property
    def running(self) -> int:
        """Requests that hold a slot."""
        return len(self._residency.residents)

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot, or for their leader's prompt."""
        return len(self._residency.waiting) + len(self._siblings)

    @property
    def frames(self) -> int:
        """Rounds that may be in flight at once."""
        return self._frames

    @property
    def frames_in_flight(self) -> int:
        """Rounds that have been submitted and not completed."""
        return len(self._in_flight)

    @property
    def idle(self) -> bool:
        """Whether no request is live and nothing is held for one."""
        return not (self._residency.residents or self.waiting)

    @property
    def settled(self) -> bool:
        """Whether completions have left nothing for `settle`."""
        return not self._deferred

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
            packed = self._check(request)
        except AdmissionError:
            self.counters.rejected += 1
            raise
        self._arrivals += 1
        rank = rank_of(self._rounds, request.priority, self._arrivals)
        progress = Progress(request, rank, list(request.prompt), packed=packed)
        self._live.add(progress)
        if not self._siblings.hold(progress):
            self._residency.waiting.put(progress)

    def _check(self, request: Request) -> array[int]:
        packed = check_request(request, self.geometry)
        # Over queue and slots together, too: who was preempted waits beside the queue.
        leads = self._live.check(request, self.options.queue_limit + self.slots.slots)
        if leads and not self.has_room():
            text = f"{self._residency.waiting.pending} requests wait for a slot already"
            where = f"request {request.request_id}"
            raise AdmissionError(text, where=where, remedy="Try again later")
        return packed

    def is_live(self, request_id: int) -> bool:
        """Whether a request's last event is still to come."""
        return self._live.find(request_id) is not None

    def has_room(self, *, beside: int = 0) -> bool:
        """Whether another request may wait for a slot, `beside` some that are about to. Those that
        can have one get it first: a burst arrives before any round is planned."""
        waiting, limit = self._residency.waiting, self.options.queue_limit - beside
        if waiting.pending >= limit and self.failure is None:
            self.proceed()
            self._admit()
        return waiting.pending < limit and self._live.leaders < limit + self.slots.slots

    def cancel(
        self, request_id: int, failure: str | None = None, finish: Finish = Finish.FAILED
    ) -> list[Event]:
        """Ends a request wherever it is, as failed where there is a `failure`, which counts as
        `finish`; none of its tokens are reported any more. What it holds comes back at its last
        fence. An unknown or ended request is ignored."""
        self.proceed()
        self.settle()
        progress = self._live.find(request_id)
        if progress is None:
            return []
        resident = self._residency.of(progress)
        if resident is not None:
            self._residency.end(resident, Ending.FAILED if failure else Ending.CANCELLED)
        elif not self._siblings.remove(progress):
            self._residency.waiting.remove(progress)
        if failure:
            self._live.retire(progress, finish)
            return [RequestFailed(request_id, failure)]
        self._live.retire(progress, Finish.CANCELLED)
        return [TokensEmitted(request_id, (), (), Finish.CANCELLED, max(progress.reused, 0))]

    def cancel_all(self) -> list[Event]:
        """Cancels every live request."""
        return [
            event for progress in self._live for event in self.cancel(progress.request.request_id)
        ]

    def stop(self, request_id: int) -> None:
        """Ends a request with `host_stops` at the token that the last `complete` reported, with
        `Finish.STOP` whatever its event says. No round of it is planned any more; what it has
        computed and not published is dropped, and what it holds comes back at its last fence."""
        progress = self._live.find(request_id)
        assert progress is not None, "a request is stopped that isn't live"
        self._fences.stop(progress)

    def proceed(self) -> None:
        """Whom `stop` hasn't ended goes on, or ends as its round said. Planning, cancelling and
        the next completion do this by themselves."""
        self._fences.proceed()

    def settle(self) -> None:
        """Publishes and gives back what completions have left. Planning does this by itself where
        somebody waits or pages are scarce; until it has been done, who has ended counts as
        running."""
        self._deferred.run()

    # ------------------------------------------------------------ rounds

    def can_plan(self) -> bool:
        """Whether a frame is free for another round."""
        return self.failure is None and len(self._in_flight) < self._frames

    def plan(self) -> PlannedRound | None:
        """The next round, or None where nothing can go on before a fence or an arrival. A planned
        round must be submitted and begun before the next call of any other method."""
        assert self.can_plan(), "a round was planned without a free frame"
        self._fences.proceed()
        self._admit()
        outstanding = len(self._in_flight)
        planned = self._planner.plan(outstanding)
        if planned is None and (self._snapshots.any_due or self._residency.can_admit()):
            # Planning has preempted somebody, and what that takes can be done at once.
            self._admit()
            planned = self._planner.plan(outstanding)
        return planned

    def _admit(self) -> None:
        """Gives slots to those that can have one now."""
        residency = self._residency
        if residency.waiting or self._siblings:
            self._deferred.run()
        if self._siblings:
            for progress in self._siblings.release():
                residency.waiting.put(progress)
        while residency.waiting:
            if residency.can_admit():
                residency.admit()
            elif not residency.make_way():
                return

    def look_ahead(self) -> PlannedRound | None:
        """While rounds run: the one that `plan` returns next, as far as it can be told, if nothing
        happens but that they complete."""
        return self._planner.look_ahead()

    def begin(self, planned: PlannedRound, sequence: int) -> None:
        """Notes that the runtime has taken the round as `sequence`."""
        advance(planned, sequence)
        self.costs.learn()  # of what has completed; the launch didn't wait for it
        self._rounds += 1
        self._in_flight.append(InFlight(sequence, planned))
        count_submission(self.counters, planned, len(self._in_flight))
        operation = planned.program.operation
        if operation in PROMPTS:
            self._snapshots.prompts_went_on(planned)
        elif operation is Operation.SNAPSHOT:
            self._snapshots.begun(planned)
        elif operation in ADMITTING:
            self._residency.begun(planned.residents)

    def complete(self, completion: Completion) -> list[Event]:
        """Accepts the oldest round's completion. Every lane is checked before any state changes;
        a faulty lane fails its request, a faulty record all requests of the round."""
        self._fences.proceed()
        self._deferred.run()
        flight = self._in_flight.popleft()
        program, _, _, tokens = flight.planned
        _, _, started_ns, completed_ns = completion
        self.costs.observe(program.index, tokens, started_ns, completed_ns)
        return self._fences.passed(flight, completion)

    def fail(self, message: str) -> list[Event]:
        """The device has failed: fails every live request and takes no more. Nothing is reused,
        so the rounds in flight are forgotten."""
        self.proceed()
        self.settle()
        self.failure = message
        events: list[Event] = []
        for progress in self._live:
            events.append(RequestFailed(progress.request.request_id, message))
            self._live.retire(progress, Finish.FAILED)
        self._in_flight.clear()
        self._snapshots.fail()
        self._residency.waiting.clear()
        self._siblings.clear()
        for resident in list(self._residency.residents):
            resident.rounds_in_flight = 0
            self._residency.end(resident, Ending.FAILED)
        return events

    # ------------------------------------------------------------ cache and books

    def reset_cache(self) -> None:
        """Forgets everything published. Residents keep what they hold and publish nothing more
        until they are readmitted."""
        self.settle()
        self.cache.clear()
        if self._tier is not None:
            self._residency.waiting.forget_content()
            self._tier.reset()

    def wait_for_content(self, timeout_ms: int) -> None:
        """Waits at most so long for what the second tier brings in for the first request that
        waits; for when there is nothing else to wait for."""
        self._residency.waiting.wait_for_content(timeout_ms)

    def inspect(self) -> IntegrityReport:
        """Whether nothing is lost or held twice: slots, pages, rows, ranks, requests, fences."""
        return inspect(
            self._residency,
            self._live,
            self._siblings,
            [flight.planned.residents for flight in self._in_flight],
            self._snapshots.rows,
            self._deferred,
        )

    def check_books(self) -> None:
        """Raises IntegrityError where the books don't agree."""
        report = self.inspect()
        if not report.holds:
            raise IntegrityError(report)
