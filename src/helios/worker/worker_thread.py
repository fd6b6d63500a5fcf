"""The model worker as the in-process engine has it: a thread, and a queue for each request.

Any number of threads may submit and read at once. What ends the worker reaches all who still wait.
A fork of the process has neither the thread nor its locks and may not use it.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Sequence
from queue import SimpleQueue

from helios.dataclass import dataclass
from helios.errors import ExecutionError, HeliosError
from helios.frontend.prepare import PreparedRequest
from helios.worker.channel import InProcessChannel
from helios.worker.grammars import OpenVocabulary
from helios.worker.held_requests import OpenTokenBytes
from helios.worker.messages import (
    BooksBroken,
    Cancel,
    FailedEvent,
    FromWorker,
    PrefixCacheReset,
    Progress,
    ReadStatistics,
    RejectedEvent,
    ResetPrefixCache,
    Shutdown,
    Statistics,
    Submit,
    Taken,
    TokensEvent,
    WorkerFailed,
    WorkerReady,
)
from helios.worker.model_worker import ModelWorker
from helios.worker.startup import LoadedModel

RequestEvent = TokensEvent | RejectedEvent | FailedEvent


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """A submitted request and the queue that its events go to, the last of which ends it. An
    error in the queue is the worker's end. Its first event has its prompt's scores if it is
    `scored`."""

    request_id: int
    prepared: PreparedRequest
    events: SimpleQueue[RequestEvent | HeliosError]
    scored: bool = False


class WorkerThread:
    """Runs from its construction to `close`. Thread-safe."""

    def __init__(
        self,
        model: LoadedModel,
        *,
        open_token_bytes: OpenTokenBytes,
        open_vocabulary: OpenVocabulary,
    ) -> None:
        self._process = os.getpid()
        self._ids = itertools.count(1)
        # Requests whose last event is still to come.
        self._pending: dict[int, PendingRequest] = {}
        # Answers to what isn't a request. One asks at a time.
        self._answers: SimpleQueue[Statistics | PrefixCacheReset | HeliosError] = SimpleQueue()
        self._asking = threading.Lock()
        self._failure: HeliosError | None = None
        self._registering = threading.Lock()
        self._channel = InProcessChannel(self._deliver)
        self._worker = ModelWorker(
            model.runtime,
            self._channel,
            model.scheduler,
            tier=model.tier,
            open_token_bytes=open_token_bytes,
            open_vocabulary=open_vocabulary,
            origin_ns=model.origin_ns,
        )
        self._thread = threading.Thread(target=self._run, name="helios-worker", daemon=True)
        self._thread.start()

    def submit(
        self, prepared: Sequence[PreparedRequest], *, siblings: bool = False
    ) -> list[PendingRequest]:
        """Queues requests; with `siblings` they are choices of the first one's prompt, which is
        then scored for it alone. Raises the worker's failure."""
        pending = [
            PendingRequest(
                next(self._ids),
                one,
                SimpleQueue(),
                one.prompt_logprobs is not None and not (siblings and number),
            )
            for number, one in enumerate(prepared)
        ]
        with self._registering:
            if self._failure is not None:
                raise self._failure
            self._pending.update((one.request_id, one) for one in pending)
        leader = pending[0].request_id if siblings else None
        self._channel.post(
            [
                Submit.of(
                    one.request_id,
                    one.prepared,
                    sibling_of=None if one.request_id == leader else leader,
                    score_prompt=one.scored,
                )
                for one in pending
            ]
        )
        return pending

    def abandon(self, pending: PendingRequest) -> None:
        """Cancels a request unless it has ended, or its reader was left behind by a fork."""
        if os.getpid() != self._process:
            return
        if self._pending.pop(pending.request_id, None) is not None:
            self._channel.post([Cancel(pending.request_id)])

    def check_process(self) -> None:
        """Raises ExecutionError in a fork, where waiting would never end."""
        if os.getpid() != self._process:
            raise ExecutionError(
                f"the engine belongs to process {self._process}, of which this one is a fork",
                where="engine",
                remedy="Open an engine after forking, in each process that needs one",
            )

    def statistics(self) -> Statistics:
        """Counters since start, gauges now. Raises the worker's failure."""
        answer = self._ask(ReadStatistics())
        assert isinstance(answer, Statistics), "it answers what was asked"
        return answer

    def reset_prefix_cache(self) -> None:
        """From now on nothing computed before is reused, from second tiers neither. Raises the
        worker's failure."""
        self._ask(ResetPrefixCache())

    def _ask(self, question: ReadStatistics | ResetPrefixCache) -> Statistics | PrefixCacheReset:
        self.check_process()
        with self._asking:
            with self._registering:
                if self._failure is not None:
                    raise self._failure
                self._channel.post([question])
            answer = self._answers.get()
        if isinstance(answer, HeliosError):
            raise answer
        return answer

    def close(self) -> bool:
        """Cancels what runs and waits for the thread's end, after which nothing uses the model.
        Idempotent; False in a fork, where there is nothing to close."""
        if os.getpid() != self._process:
            return False
        self._channel.post([Shutdown()])
        self._thread.join()
        return True

    # ------------------------------------------------------------ on the worker's thread

    def _run(self) -> None:
        """What ends the worker reaches whoever still waits."""
        failure: HeliosError = ExecutionError("the engine is closed", remedy="Open it again")
        try:
            self._worker.run()
        except HeliosError as error:
            failure = error
        except Exception as error:
            failure = ExecutionError(f"the worker failed: {error!r}", where="helios-worker")
            raise
        finally:
            with self._registering:
                self._failure = failure
            for pending in list(self._pending.values()):
                pending.events.put(failure)
            self._answers.put(failure)

    def _deliver(self, messages: Sequence[FromWorker]) -> None:
        """Hands events to their requests."""
        for message in messages:
            match message:
                case Statistics() | PrefixCacheReset():
                    self._answers.put(message)
                case TokensEvent() | RejectedEvent() | FailedEvent():
                    going_on = isinstance(message, TokensEvent) and not message.finish
                    find = self._pending.get if going_on else self._pending.pop
                    pending = find(message.request_id, None)
                    if pending is not None:  # else its reader has gone
                        pending.events.put(message)
                case WorkerReady() | WorkerFailed() | BooksBroken() | Progress() | Taken():
                    pass  # loaded already; seen by `_run`; logged; asked for by nobody; no matter
