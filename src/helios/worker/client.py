"""The model worker as the HTTP process sees it: submits to it, hears from it, ends it.

All methods run on the event loop's thread. Each request has a recipient that is given its events
as they arrive (`pending_requests`) and keeps what its reader isn't ready for: a slow reader holds
up nobody. When the worker dies, every pending request gets a
typed error and `failure` says why from then on.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import AsyncGenerator, Iterable
from typing import Final

import helios.errors
from helios.errors import ExecutionError, HeliosError
from helios.worker.channel import BatchDecoder, encode_batch
from helios.worker.launch import LaunchedWorker
from helios.worker.messages import (
    BooksBroken,
    PrefixCacheReset,
    Progress,
    ReadProgress,
    ReadStatistics,
    ResetPrefixCache,
    Shutdown,
    Statistics,
    Submit,
    Taken,
    ToWorker,
    WorkerFailed,
    WorkerReady,
)
from helios.worker.peer_messages import Asked, AskResult, FromProcess, ToProcess
from helios.worker.peers import AnswerPeer, Peers
from helios.worker.pending_requests import PendingRequests
from helios.worker.questions import Answer, Questions
from helios.worker.recipient import QueueRecipient, Recipient, RequestEvent, ends

_Handed = WorkerReady | Statistics | BooksBroken | PrefixCacheReset | Progress | Taken

_RECEIVE_NBYTES: Final = 1 << 18
# The worker has nothing to lose, so one that is slow to end may be killed.
_CLOSE_TIMEOUT_S: Final = 2.0


class ModelClient:
    """Use `attach` for the process that has launched the worker, whose `close` ends it, or `join`
    for another one."""

    def __init__(
        self,
        process: subprocess.Popen[bytes] | None,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        processes: int,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._process = process
        self._reader = reader
        self._writer = writer
        self._loop = loop
        self._ready: asyncio.Future[WorkerReady] = loop.create_future()
        self._requests = PendingRequests(self._post)
        self._questions = Questions()
        self._outgoing: list[FromProcess] = []
        self._failure: HeliosError | None = None
        self._unsound = ""
        self._processes = processes
        self._peers = Peers(self._post) if processes > 1 else None
        self._reading = loop.create_task(self._read(), name="helios worker messages")

    @classmethod
    async def attach(cls, worker: LaunchedWorker, processes: int = 1) -> ModelClient:
        """A client of a worker that has just been launched and that loads the model while the
        caller goes on (see `ready`). The client owns both its process and its socket. So many
        HTTP processes share the worker."""
        reader, writer = await asyncio.open_connection(sock=worker.connection)
        return cls(worker.process, reader, writer, processes)

    @classmethod
    async def join(cls, connection: socket.socket, processes: int) -> ModelClient:
        """A client of a worker that another process has launched, over a connection of its own,
        which it owns."""
        reader, writer = await asyncio.open_connection(sock=connection)
        return cls(None, reader, writer, processes)

    @property
    def failure(self) -> HeliosError | None:
        """Why the worker can't serve (any more), if so."""
        return self._failure

    @property
    def unsound(self) -> str:
        """What is wrong with the worker's books, if they don't agree; it serves nevertheless."""
        return self._unsound

    async def ready(self) -> WorkerReady:
        """Waits for the end of start-up. Raises the error that kept the worker from serving."""
        return await asyncio.shield(self._ready)

    def begin(self, request: Submit, recipient: Recipient) -> None:
        """Sends a request, whose events go to `recipient` up to the one that ends it, or until
        `leave`. Raises the worker's failure if it is dead; if it dies later the recipient hears
        so."""
        if self._failure is not None:
            raise self._failure
        self._requests.begin(request, recipient)

    def leave(self, request_id: int) -> None:
        """Nobody hears the request any more: it is cancelled, unless it has ended."""
        self._requests.leave(request_id)

    async def submit(self, request: Submit) -> AsyncGenerator[RequestEvent, None]:
        """A request's events, up to the one that ends it. Dropping or closing the iterator
        earlier cancels the request. Raises the worker's failure if it dies meanwhile."""
        events = QueueRecipient()
        self.begin(request, events)
        try:
            ended = False
            while not ended:
                event = await events.next()
                ended = ends(event)
                yield event
        finally:
            self.leave(request.request_id)

    def cancel(self, request_id: int) -> None:
        """Ends a request; its iterator still gives what arrived, then a `cancelled` finish."""
        self._requests.cancel(request_id)

    def cancel_all(self) -> None:
        """Ends every request with a `cancelled` finish, and so every one that still comes. Their
        recipients hear it at once, even if the worker no longer answers."""
        self._requests.cancel_all()

    async def statistics(self) -> Statistics:
        """Counters and gauges now. Raises the worker's failure if it is dead."""
        return await self._ask(ReadStatistics(), Statistics)

    async def reset_prefix_cache(self) -> None:
        """Returns once no request can reuse what was computed before, from second tiers neither.
        Raises the worker's failure if it is dead or dies meanwhile."""
        await self._ask(ResetPrefixCache(), PrefixCacheReset)

    async def progress(self) -> Progress:
        """Whether there is work, and how far the device has come with it. A worker that is stuck
        doesn't answer. Raises the worker's failure if it is dead or dies meanwhile."""
        return await self._ask(ReadProgress(), Progress)

    async def _ask(self, question: ToWorker, kind: type[Answer]) -> Answer:
        if self._failure is not None:
            raise self._failure
        answer = self._questions.ask(kind)
        self._post(question)
        return await answer

    async def ask_peers(self, kind: str, payload: bytes) -> list[bytes]:
        """What the other HTTP processes answer; none where there are none. As `Peers.ask`."""
        if self._failure is not None:
            raise self._failure
        return [] if self._peers is None else await self._peers.ask(kind, payload)

    def answer_peers(self, answer: AnswerPeer) -> None:
        """`answer` is what others get from now on."""
        if self._peers is not None:
            self._peers.answer = answer

    async def close(
        self, drain_timeout_s: float = _CLOSE_TIMEOUT_S, hurry: asyncio.Event | None = None
    ) -> None:
        """Ends the worker, if this process has launched it: what is in flight on the device
        finishes, requests are cancelled. A worker that is still loading or couldn't load, or
        doesn't end in time or before `hurry` is set, is killed. A process that has joined only
        leaves, which cancels its requests. Idempotent."""
        if self._process is None:
            self._writer.close()
            await self._reading
            return
        if self._ready.done() and self._ready.exception() is None:
            self._post(Shutdown())
        else:
            self._process.kill()
        hurried = asyncio.ensure_future((hurry or asyncio.Event()).wait())
        await asyncio.wait(
            {self._reading, hurried},
            timeout=drain_timeout_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        hurried.cancel()
        if not self._reading.done():
            self._process.kill()
        await self._reading
        self._writer.close()

    # ------------------------------------------------------------ transport

    def _post(self, message: FromProcess) -> None:
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
        decoder: BatchDecoder[ToProcess] = BatchDecoder(ToProcess)
        failure: HeliosError | None = None
        try:
            while received := await self._reader.read(_RECEIVE_NBYTES):
                failure = self._take(decoder.feed(received)) or failure
        except ConnectionError:
            pass  # the worker was killed; its status says more
        except HeliosError as error:
            failure = failure or error
            if self._process is not None:
                self._process.kill()
        ended = "the process has gone"
        if self._process is not None:
            ended = f"the process ended with status {await asyncio.to_thread(self._process.wait)}"
        self._fail(failure or ExecutionError(ended, where="model worker", remedy=_RESTART))

    def _take(self, messages: Iterable[ToProcess]) -> HeliosError | None:
        """Hands a batch on; what it says of the worker's failure, if anything."""
        failure: HeliosError | None = None
        waiting: list[Recipient] = []
        for message in messages:
            if isinstance(message, RequestEvent):
                recipient = self._requests.recipient(message)
                if recipient is not None and recipient.take(message):
                    waiting.append(recipient)
            elif isinstance(message, Asked | AskResult):
                assert self._peers is not None, "only processes with peers hear of them"
                self._peers.hear(message)
            elif isinstance(message, WorkerFailed):
                failure = _error_of(message)
            else:
                self._hand_on(message)
        for recipient in waiting:
            recipient.deliver()
        if failure is not None:
            # Who hears that a request has failed may ask how the server is at once, and a worker
            # takes its time to end where a device doesn't answer.
            self._fail(failure)
        return failure

    def _hand_on(self, message: _Handed) -> None:
        if isinstance(message, WorkerReady):
            # Each process has its share of the worker's ingress.
            places = max(1, message.queue_capacity // self._processes)
            self._requests.open(places, message.event_capacity)
            self._ready.set_result(message)
        elif isinstance(message, Taken):
            self._requests.taken(message.request_id)
        elif isinstance(message, BooksBroken):
            self._unsound = message.message
        else:
            self._questions.answer(message)

    def _fail(self, failure: HeliosError) -> None:
        """The first failure is the reason; what follows from it isn't."""
        if self._failure is not None:
            return
        self._failure = failure
        self._requests.fail(failure)
        self._questions.fail(failure)
        if self._peers is not None:
            self._peers.fail(failure)
        if not self._ready.done():
            self._ready.set_exception(failure)
            self._ready.exception()  # nobody need have waited for it


_RESTART: Final = "Read what it wrote to the terminal and start the server again"


def _error_of(message: WorkerFailed) -> HeliosError:
    """The worker's error as an exception of the same class, or ExecutionError."""
    kind = getattr(helios.errors, message.error, None)
    if isinstance(kind, type) and issubclass(kind, HeliosError):
        return kind(message.message)
    return ExecutionError(message.message, where="model worker", remedy=_RESTART)
