"""The model worker as the HTTP process sees it: submits to it, hears from it, ends it.

All methods run on the event loop's thread. Each request has a queue that grows as events arrive,
up to what the request may have (`event_budget`), so a slow reader holds up nobody. When the worker
dies, every pending request gets a typed error and `failure` says why from then on.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections import deque
from collections.abc import AsyncGenerator
from typing import Final

import helios.errors
from helios.errors import ExecutionError, HeliosError
from helios.worker.channel import BatchDecoder, encode_batch
from helios.worker.event_budget import event_budget
from helios.worker.launch import LaunchedWorker
from helios.worker.messages import (
    Cancel,
    FailedEvent,
    Finish,
    FromWorker,
    ReadStatistics,
    RejectedEvent,
    Shutdown,
    Statistics,
    Submit,
    TokensEvent,
    ToWorker,
    WorkerFailed,
    WorkerReady,
)

RequestEvent = TokensEvent | RejectedEvent | FailedEvent

_RECEIVE_NBYTES: Final = 1 << 18
# The worker has nothing to lose, so one that is slow to end may be killed.
_CLOSE_TIMEOUT_S: Final = 2.0


class ModelClient:
    """Use `attach`; `close` ends the worker."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._process = process
        self._reader = reader
        self._writer = writer
        self._loop = loop
        self._ready: asyncio.Future[WorkerReady] = loop.create_future()
        self._requests: dict[int, asyncio.Queue[RequestEvent | HeliosError]] = {}
        self._statistics: deque[asyncio.Future[Statistics]] = deque()
        self._outgoing: list[ToWorker] = []
        self._event_capacity = 0
        self._failure: HeliosError | None = None
        self._ending = False
        self._reading = loop.create_task(self._read(), name="helios worker messages")

    @classmethod
    async def attach(cls, worker: LaunchedWorker) -> ModelClient:
        """A client of a worker that has just been launched and that loads the model while the
        caller goes on (see `ready`). The client owns both its process and its socket."""
        reader, writer = await asyncio.open_connection(sock=worker.connection)
        return cls(worker.process, reader, writer)

    @property
    def failure(self) -> HeliosError | None:
        """Why the worker can't serve (any more), if so."""
        return self._failure

    async def ready(self) -> WorkerReady:
        """Waits for the end of start-up. Raises the error that kept the worker from serving."""
        return await asyncio.shield(self._ready)

    async def submit(self, request: Submit) -> AsyncGenerator[RequestEvent, None]:
        """A request's events, up to the one that ends it. Dropping or closing the iterator
        earlier cancels the request. Raises the worker's failure if it dies meanwhile."""
        if self._failure is not None:
            raise self._failure
        if self._ending:
            yield _cancelled(request.request_id)
            return
        assert request.request_id not in self._requests, "a pending request has this id"
        events: asyncio.Queue[RequestEvent | HeliosError] = asyncio.Queue(
            event_budget(request, self._event_capacity)
        )
        self._requests[request.request_id] = events
        self._post(request)
        ended = False
        try:
            while not ended:
                event = await events.get()
                if isinstance(event, HeliosError):
                    ended = True
                    raise event
                ended = not isinstance(event, TokensEvent) or event.finish != 0
                yield event
        finally:
            del self._requests[request.request_id]
            if not ended:
                self._post(Cancel(request.request_id))

    def cancel(self, request_id: int) -> None:
        """Ends a request; its iterator still gives what arrived, then a `cancelled` finish."""
        self._post(Cancel(request_id))

    def cancel_all(self) -> None:
        """Ends every request with a `cancelled` finish, and so every one that still comes. Their
        iterators end at once, even if the worker no longer answers."""
        self._ending = True
        for request_id, events in self._requests.items():
            self._post(Cancel(request_id))
            events.put_nowait(_cancelled(request_id))

    async def statistics(self) -> Statistics:
        """Counters and gauges now. Raises the worker's failure if it is dead."""
        if self._failure is not None:
            raise self._failure
        answer: asyncio.Future[Statistics] = self._loop.create_future()
        self._statistics.append(answer)
        self._post(ReadStatistics())
        return await answer

    async def close(self) -> None:
        """Ends the worker: what is in flight on the device finishes, requests are cancelled. A
        worker that is still loading or doesn't end in time is killed. Idempotent."""
        if self._ready.done():
            self._post(Shutdown())
        else:
            self._process.kill()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await asyncio.shield(self._reading)
        except TimeoutError:
            self._process.kill()
            await self._reading
        self._writer.close()

    # ------------------------------------------------------------ transport

    def _post(self, message: ToWorker) -> None:
        """Sends a message, together with what else is posted in this turn of the event loop."""
        if self._failure is not None:
            return
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(message)

    def _flush(self) -> None:
        batch, self._outgoing = self._outgoing, []
        if self._failure is None:
            self._writer.write(encode_batch(batch))

    async def _read(self) -> None:
        """Hands on messages until the worker's end of the socket closes, then says why."""
        decoder: BatchDecoder[FromWorker] = BatchDecoder(FromWorker)
        failure: HeliosError | None = None
        try:
            while received := await self._reader.read(_RECEIVE_NBYTES):
                for message in decoder.feed(received):
                    if isinstance(message, WorkerFailed):
                        failure = _error_of(message)
                    else:
                        self._hand_on(message)
        except ConnectionError:
            pass  # the worker was killed; its status says more
        except HeliosError as error:
            failure = failure or error
            self._process.kill()
        status = await asyncio.to_thread(self._process.wait)
        self._fail(
            failure
            or ExecutionError(
                f"the process ended with status {status}", where="model worker", remedy=_RESTART
            )
        )

    def _hand_on(
        self, message: WorkerReady | TokensEvent | RejectedEvent | FailedEvent | Statistics
    ) -> None:
        if isinstance(message, WorkerReady):
            self._event_capacity = message.event_capacity
            self._ready.set_result(message)
        elif isinstance(message, Statistics):
            answer = self._statistics.popleft()
            if not answer.done():
                answer.set_result(message)
        else:
            events = self._requests.get(message.request_id)
            if events is None:  # its reader has gone
                return
            if events.full():
                raise ExecutionError(
                    f"request {message.request_id} had more events than its output can have",
                    where="model worker",
                    remedy=_RESTART,
                )
            events.put_nowait(message)

    def _fail(self, failure: HeliosError) -> None:
        self._failure = failure
        for events in self._requests.values():
            events.put_nowait(failure)
        while self._statistics:
            answer = self._statistics.popleft()
            if not answer.done():
                answer.set_exception(failure)
        if not self._ready.done():
            self._ready.set_exception(failure)
            self._ready.exception()  # nobody need have waited for it


def _cancelled(request_id: int) -> TokensEvent:
    return TokensEvent(request_id, [], [], Finish.CANCELLED)


_RESTART: Final = "Read what it wrote to the terminal and start the server again"


def _error_of(message: WorkerFailed) -> HeliosError:
    """The worker's error as an exception of the same class, or ExecutionError."""
    kind = getattr(helios.errors, message.error, None)
    if isinstance(kind, type) and issubclass(kind, HeliosError):
        return kind(message.message)
    return ExecutionError(message.message, where="model worker", remedy=_RESTART)
