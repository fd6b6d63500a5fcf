"""The worker's loop: one thread that takes messages, plans and submits rounds, completes them and
sends what came of them.

It holds no policy (that is the scheduler's) and no device (that is the runtime's). The worker
process and the in-process engine each run one. While a round runs on the device the loop plans,
packs and submits the next one, then waits without the GIL; with nothing to do it sleeps in the
channel.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, assert_never

from helios.errors import AdmissionError, HeliosError
from helios.runtime.geometry import Geometry, ProgramInfo
from helios.runtime.rounds import Completion, Round
from helios.scheduler import (
    Event,
    Finish,
    PromptScored,
    Request,
    RequestFailed,
    Scheduler,
    SchedulerOptions,
)
from helios.scheduler.planned import PlannedRound
from helios.scheduler.second_tier import SecondTier
from helios.worker.channel import WorkerChannel
from helios.worker.host_stops import HostStops, OpenTokenizer, no_tokenizer
from helios.worker.integrity import BooksCheck
from helios.worker.messages import (
    Cancel,
    FailedEvent,
    FromWorker,
    PrefixCacheReset,
    ReadStatistics,
    RejectedEvent,
    ResetPrefixCache,
    Shutdown,
    Submit,
    TokensEvent,
    ToWorker,
    WorkerFailed,
)
from helios.worker.statistics import RoundCounters, statistics

# While a long round runs, arrivals are looked at this often.
_WAIT_MS: Final = 100
# So long nothing has arrived when the books are looked at: whoever comes soon needn't wait for it.
_QUIET_MS: Final = 200
# Arrivals are looked at this often while the second tier brings in what a request waits for.
_CONTENT_WAIT_MS: Final = 2


class Runtime(Protocol):
    """What the worker needs of a runtime; `ModelRuntime` has it."""

    geometry: Geometry

    def can_submit(self) -> bool:
        """Whether a frame is free."""

    def submit(self, work: Round, /) -> int:
        """Packs and queues a round; its sequence."""

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Waits for a round without the GIL; False on time-out."""

    def read(self, sequence: int) -> Completion:
        """A completed round's answer; frees its frame."""


class Trace(Protocol):
    """Hears what the loop did: `step` is plan, submit, wait, complete or send; times are on
    time.monotonic_ns's clock."""

    def __call__(self, step: str, sequence: int, began_ns: int, ended_ns: int, /) -> None:
        """A step is over."""


class ModelWorker:
    """`run` serves until the client goes, asks for the end, or the device fails."""

    def __init__(
        self,
        runtime: Runtime,
        channel: WorkerChannel,
        options: SchedulerOptions | None = None,
        *,
        tier: SecondTier | None = None,
        open_tokenizer: OpenTokenizer = no_tokenizer,
        clock: Callable[[], int] = time.monotonic_ns,
        origin_ns: int = 0,
        trace: Trace | None = None,
    ) -> None:
        """Times of tokens are `clock`'s, counted from `origin_ns`."""
        self.scheduler = Scheduler(runtime.geometry, options, tier)
        self._tier = tier
        self._runtime = runtime
        self._channel = channel
        self._trace = trace
        self._counters = RoundCounters(runtime.geometry)
        self._stops = HostStops(open_tokenizer)
        self._now = clock
        self._origin_ns = origin_ns
        # Requests that want to know when their tokens were completed.
        self._timed: set[int] = set()
        self._in_flight: deque[tuple[int, ProgramInfo, bool]] = deque()
        self._outgoing: list[FromWorker] = []
        self._ending = False
        self._books = BooksCheck()
        self._books_changed = False

    def run(self) -> None:
        """Returns when it has been told to end and nothing is in flight any more. A failure of
        the device fails every request, is reported, and is raised again."""
        try:
            while self._turn():
                pass
        except Exception as error:
            message = str(error) if isinstance(error, HeliosError) else repr(error)
            self._note(self.scheduler.fail(message))
            self._outgoing.append(WorkerFailed(type(error).__name__, message))
            self._send()
            raise

    def _turn(self) -> bool:
        scheduler = self.scheduler
        if scheduler.idle:
            if self._ending:
                self._look_at_books()
                return False
            self._take(self._await_work())
        else:
            self._take(self._channel.receive(block=False))
        if self._channel.closed:
            self._end()
        self._launch()
        self._send()
        if self._in_flight:
            self._complete()
            self._send()
        elif not scheduler.idle:
            scheduler.wait_for_content(_CONTENT_WAIT_MS)
        return True

    def _await_work(self) -> list[ToWorker]:
        """Waits for messages; looks at the books meanwhile, if there was work since the last
        look."""
        if self._books_changed:
            messages = self._channel.receive(block=True, timeout_ms=_QUIET_MS)
            if messages or self._channel.closed:
                return messages
            self._look_at_books()
        return self._channel.receive(block=True)

    def _look_at_books(self) -> None:
        """Tells of books that don't agree; whoever uses the engine goes on."""
        if self._books_changed:
            self._outgoing += self._books.look(self.scheduler)
            self._books_changed = False
            self._send()

    def _launch(self) -> None:
        """Plans and submits rounds while frames are free and something can go on."""
        scheduler = self.scheduler
        while scheduler.can_plan() and self._runtime.can_submit():
            began = self._clock()
            planned = scheduler.plan()
            if planned is None:
                return
            ended = self._clock()
            sequence = self._runtime.submit(planned.round)
            scheduler.begin(planned, sequence)
            self._in_flight.append((sequence, planned.program, self._is_timed(planned)))
            if self._trace is not None:
                self._trace("plan", sequence, began, ended)
                self._trace("submit", sequence, ended, self._clock())

    def _complete(self) -> None:
        """Waits for the oldest round and takes what came of it."""
        sequence, program, timed = self._in_flight.popleft()
        began = self._clock()
        while not self._runtime.wait(sequence, _WAIT_MS):
            self._take(self._channel.receive(block=False))
            self._send()
        ended = self._clock()
        events = self.scheduler.complete(self._runtime.read(sequence))
        completed_ns = self._now() - self._origin_ns if timed else 0
        self._note(events, completed_ns)
        self.scheduler.proceed()
        self._counters.count(program)
        if self._trace is not None:
            self._trace("wait", sequence, began, ended)
            self._trace("complete", sequence, ended, self._clock())

    def _is_timed(self, planned: PlannedRound) -> bool:
        """Whether the round makes a token of a request that wants to know when."""
        return bool(self._timed) and any(
            lane.sample and resident.progress.request.request_id in self._timed
            for resident, lane in zip(planned.residents, planned.round.lanes, strict=True)
        )

    # ------------------------------------------------------------ messages

    def _take(self, messages: Sequence[ToWorker]) -> None:
        for message in messages:
            match message:
                case Submit():
                    self._submit(message)
                case Cancel():
                    self._note(self.scheduler.cancel(message.request_id))
                case ReadStatistics():
                    self._outgoing.append(
                        statistics(
                            self.scheduler, self._counters, self._books.violations, self._tier
                        )
                    )
                case ResetPrefixCache():
                    self.scheduler.reset_cache()
                    self._books_changed = True
                    self._outgoing.append(PrefixCacheReset())
                case Shutdown():
                    self._end()
                case _:
                    assert_never(message)

    def _submit(self, message: Submit) -> None:
        request = Request(
            request_id=message.request_id,
            prompt=tuple(message.prompt_tokens),
            output_limit=message.output_limit,
            sampling=message.sampling.parameters(),
            eos_ids=tuple(message.eos_ids),
            priority=message.priority,
            score_prompt=message.score_prompt,
            host_stops=message.stops is not None,
            sibling_of=message.sibling_of,
        )
        self._books_changed = True
        try:
            self.scheduler.submit(request)
        except AdmissionError as error:
            self._outgoing.append(RejectedEvent(message.request_id, str(error)))
            return
        try:
            self._stops.begin(message)
        except HeliosError as error:
            self.scheduler.cancel(message.request_id)
            self._outgoing.append(FailedEvent(message.request_id, str(error)))
            return
        if message.timed:
            self._timed.add(message.request_id)
        if self._ending:
            self._note(self.scheduler.cancel(message.request_id))

    def _end(self) -> None:
        """Cancels every request; what is in flight still passes its fence."""
        if not self._ending:
            self._ending = True
            self._note(self.scheduler.cancel_all())

    def _note(self, events: Sequence[Event], completed_ns: int = 0) -> None:
        """Makes messages of events, and stops those requests whose tokens complete a stop."""
        scores: Sequence[float] = ()
        for event in events:
            if isinstance(event, PromptScored):
                scores = event.logprobs  # the request's first token follows at once
            elif isinstance(event, RequestFailed):
                self._outgoing.append(FailedEvent(event.request_id, event.message))
                self._forget(event.request_id)
            else:
                request_id, finish = event.request_id, event.finish
                if self._stops.ends(event):
                    self.scheduler.stop(request_id)
                    finish = Finish.STOP
                self._outgoing.append(
                    TokensEvent(
                        request_id,
                        list(event.tokens),
                        list(event.logprobs),
                        finish or 0,
                        list(scores),
                        event.reused_prompt_tokens,
                        list(event.alternatives),
                        completed_ns if request_id in self._timed else 0,
                    )
                )
                scores = ()
                if finish is not None:
                    self._forget(request_id)

    def _forget(self, request_id: int) -> None:
        """The request has its last event."""
        self._stops.forget(request_id)
        self._timed.discard(request_id)

    def _send(self) -> None:
        """Sends what there is as one batch."""
        if not self._outgoing:
            return
        began = self._clock()
        self._channel.send(self._outgoing)
        self._outgoing = []
        if self._trace is not None:
            self._trace("send", 0, began, self._clock())

    def _clock(self) -> int:
        """Nanoseconds, where somebody listens."""
        return time.monotonic_ns() if self._trace is not None else 0
