"""The worker's loop: one thread that takes messages, plans and submits rounds, completes them and
sends what came of them.

It holds no policy (that is the scheduler's), no device (that is the runtime's) and no request
(`client_requests` does). The worker process and the in-process engine each run one. While a round
runs on the device the loop plans, packs and submits the next one, then waits without the GIL; with
nothing to do it sleeps in the channel. Between a round's completion and the next launch it does
what that launch needs and couldn't be done before; what a client is told comes after it, and what
nobody waits for last.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, assert_never

from helios.errors import HeliosError, family_name
from helios.runtime.geometry import Geometry
from helios.runtime.rounds import Completion, Round
from helios.scheduler import Event, Scheduler, SchedulerOptions
from helios.scheduler.planned import PlannedRound
from helios.scheduler.second_tier import SecondTier
from helios.worker.channel import WorkerChannel
from helios.worker.client_requests import ClientRequests
from helios.worker.grammars import OpenVocabulary, no_vocabulary
from helios.worker.held_requests import OpenTokenBytes, no_token_bytes
from helios.worker.integrity import BooksCheck
from helios.worker.messages import (
    Cancel,
    FromWorker,
    PrefixCacheReset,
    Progress,
    ReadProgress,
    ReadStatistics,
    ResetPrefixCache,
    Shutdown,
    Submit,
    ToWorker,
    WorkerFailed,
)
from helios.worker.request_times import RequestTimes
from helios.worker.round_counters import RoundCounters
from helios.worker.statistics import statistics

# While a long round runs, arrivals are looked at this often.
_WAIT_MS: Final = 100
# So long nothing has arrived when the books are looked at: whoever comes soon needn't wait for it.
_QUIET_MS: Final = 200
# Arrivals are looked at this often while something else than a round is waited for.
_OTHER_WAIT_MS: Final = 2
# So long those that have been told of their tokens may go on undisturbed.
_TOLD_WAIT_MS: Final = 1


class Runtime(Protocol):
    """What the worker needs of a runtime; `ModelRuntime` has it."""

    geometry: Geometry

    def can_submit(self) -> bool:
        """Whether a frame is free."""

    def submit(self, work: Round, /) -> int:
        """Packs and queues a round; its sequence."""

    def pack_ahead(self, work: Round, /) -> None:
        """Packs the round that is thought to be submitted next, if a frame is free."""

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Waits for a round without the GIL; False on time-out."""

    def read(self, sequence: int) -> Completion:
        """A completed round's answer; frees its frame."""

    def launches(self) -> int:
        """Launches that the device has begun so far."""


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
        open_token_bytes: OpenTokenBytes = no_token_bytes,
        open_vocabulary: OpenVocabulary = no_vocabulary,
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
        self._times = RequestTimes(time.monotonic_ns)
        self._requests = ClientRequests(
            self.scheduler, self._times, open_token_bytes, open_vocabulary
        )
        self._now = clock
        self._origin_ns = origin_ns
        self._in_flight: deque[tuple[int, PlannedRound, bool]] = deque()
        self._outgoing: list[FromWorker] = []
        # What completed rounds have brought and the client hasn't been told, with when it came.
        self._untold: tuple[Sequence[Event], int] | None = None
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
            self._tell()
            self._outgoing += self._requests.fail(message)
            self._outgoing.append(WorkerFailed(family_name(error), message))
            self._send()
            raise
        finally:
            self._requests.grammars.close()

    def _turn(self) -> bool:
        scheduler, held = self.scheduler, self._requests.held
        if scheduler.idle and not held:
            self._send()
            if self._ending:
                self._look_at_books()
                return False
            self._take(self._await_work())
        else:
            self._take(self._channel.receive(block=False))
        if self._channel.closed:
            self._end()
        if held:
            self._outgoing += self._requests.release()
        self._launch()
        self._send()
        if self._in_flight:
            scheduler.settle()
            self._complete()
        elif not scheduler.settled:
            # A client in this process has been told and wants the interpreter: it goes first.
            self._take(self._channel.receive(block=True, timeout_ms=_TOLD_WAIT_MS))
            scheduler.settle()
        elif not scheduler.idle:
            scheduler.wait_for_content(_OTHER_WAIT_MS)
        elif held:
            held.wait(_OTHER_WAIT_MS)
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
        if self._requests.ingress:
            self._outgoing += self._requests.feed()
        scheduler = self.scheduler
        while scheduler.can_plan() and self._runtime.can_submit():
            began = self._clock()
            planned = scheduler.plan()
            if planned is None:
                return
            ended = self._clock()
            sequence = self._runtime.submit(self._requests.constraints.masked(planned))
            scheduler.begin(planned, sequence)
            self._times.begun(planned)
            self._in_flight.append((sequence, planned, self._requests.is_timed(planned)))
            if self._trace is not None:
                self._trace("plan", sequence, began, ended)
                self._trace("submit", sequence, ended, self._clock())

    def _complete(self) -> None:
        """Waits for the oldest round and takes what came of it."""
        sequence, planned, timed = self._in_flight.popleft()
        self._look_ahead()
        began = self._clock()
        while not self._runtime.wait(sequence, _WAIT_MS):
            self._take(self._channel.receive(block=False))
            self._send()
        ended = self._clock()
        events = self.scheduler.complete(self._runtime.read(sequence))
        completed_ns = self._now() - self._origin_ns if timed else 0
        self._untold = events, completed_ns
        if self._requests.decide:
            # What comes next depends on the tokens that came.
            self._tell()
            self.scheduler.proceed()
            self._outgoing += self._requests.advance(events)
        self._counters.count(planned)
        if self._trace is not None:
            self._trace("wait", sequence, began, ended)
            self._trace("complete", sequence, ended, self._clock())

    def _look_ahead(self) -> None:
        """Does what the next launch needs while the only round runs, as far as it can be told by
        now: of grammars' masks nothing can. With another one queued the device waits for nobody."""
        if self._requests.constraints.any or not self._runtime.can_submit():
            return
        ahead = self.scheduler.look_ahead()
        if ahead is not None:
            self._runtime.pack_ahead(ahead.round)

    # ------------------------------------------------------------ messages

    def _take(self, messages: Sequence[ToWorker]) -> None:
        if messages:
            self._tell()  # before what an answer says
        for message in messages:
            match message:
                case Submit():
                    self._submit(message)
                case Cancel():
                    self._outgoing += self._requests.cancel(message.request_id)
                case ReadStatistics():
                    self.scheduler.settle()
                    self._outgoing.append(
                        statistics(
                            self.scheduler,
                            self._counters,
                            self._times,
                            self._books.violations,
                            self._tier,
                            self._requests.grammars.counters,
                        )
                    )
                case ResetPrefixCache():
                    self.scheduler.reset_cache()
                    self._books_changed = True
                    self._outgoing.append(PrefixCacheReset())
                case ReadProgress():
                    self.scheduler.settle()  # who has had the last answer isn't worked for
                    self._outgoing.append(self._progress())
                case Shutdown():
                    self._end()
                case _:
                    assert_never(message)

    def _progress(self) -> Progress:
        return Progress(
            not self.scheduler.idle, self._runtime.launches(), sum(self._counters.rounds.values())
        )

    def _submit(self, message: Submit) -> None:
        self._books_changed = True
        self._outgoing += self._requests.arrive(message)
        if self._ending:
            self._outgoing += self._requests.cancel(message.request_id)

    def _end(self) -> None:
        """Cancels every request; what is in flight still passes its fence."""
        if not self._ending:
            self._tell()
            self._ending = True
            self._outgoing += self._requests.cancel_all()

    def _tell(self) -> None:
        """Says what completed rounds have brought, as part of the next batch."""
        if self._untold is not None:
            self._outgoing += self._requests.messages(*self._untold)
            self._untold = None

    def _send(self) -> None:
        """Sends what there is as one batch."""
        began = self._clock()
        self._tell()
        self._outgoing[:0] = self._requests.ingress.news(sending=bool(self._outgoing))
        if not self._outgoing:
            return
        self._channel.send(self._outgoing)
        self._outgoing = []
        if self._trace is not None:
            self._trace("send", 0, began, self._clock())

    def _clock(self) -> int:
        """Nanoseconds, where somebody listens."""
        return time.monotonic_ns() if self._trace is not None else 0
