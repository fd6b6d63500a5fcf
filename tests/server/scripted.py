"""A model worker that follows a script, and a server over it on a real socket.

The server is the real application under uvicorn; only the worker is replaced, by an asyncio object
that yields the events a test wrote. So these tests prove the HTTP layer alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue

import httpx

from helios.errors import HeliosError
from helios.frontend.bootstrap import Frontend
from helios.server.admission import Admission
from helios.server.app import build_app
from helios.server.http_server import EndTimes, HttpServer
from helios.server.lifecycle import Lifecycle, ServedModel
from helios.server.options import HttpOptions
from helios.server.options.limits import LimitOptions
from helios.worker.messages import FailedEvent, Finish, Statistics, Submit, TokensEvent, WorkerReady
from helios.worker.peers import AnswerPeer
from helios.worker.recipient import Recipient, RequestEvent, ends
from tests.frontend.vocabularies import EOS_ID, byte_level_frontend
from tests.server.scripted_statistics import scripted_statistics

Script = Callable[[Submit], AsyncGenerator[RequestEvent, None]]
FRONTEND = byte_level_frontend()
OPTIONS = HttpOptions(limits=LimitOptions(max_body_nbytes=1 << 20))


def says(
    text: str, *, finish: Finish = Finish.EOS, frontend: Frontend = FRONTEND, reused: int = 0
) -> Script:
    """One token an event; an EOS finish has the EOS token. `reused` of the prompt's tokens came
    from the prefix cache."""
    tokens = frontend.tokenizer.encode(text)

    async def script(submit: Submit) -> AsyncGenerator[RequestEvent, None]:
        last = [EOS_ID] if finish is Finish.EOS else []
        every = [*tokens, *last]
        for index, token in enumerate(every):
            end = finish if index == len(every) - 1 else 0
            yield TokensEvent(submit.request_id, [token], [-0.5], end, [], reused)
            await asyncio.sleep(0)

    return script


READY = WorkerReady(
    kernel_path="cpu/portable",
    request_slots=4,
    speculative_width=0,
    cache_pages=24,
    cache_nbytes=24 << 10,
    page_tokens=4,
    max_context_tokens=256,
    queue_capacity=4,
    startup_ms={},
)


@dataclass
class ScriptedClient:
    """A `WorkerClient`; `script` may be exchanged between requests. `cancelled` counts those left
    before their script's end.
    `cancelling` is set once the server has asked to end every request; scripts may wait for it."""

    script: Script
    submitted: list[Submit] = field(default_factory=list)
    failure: HeliosError | None = None
    unsound: str = ""
    resets: int = 0
    running: int = 0
    _playing: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    _recipients: dict[int, Recipient] = field(default_factory=dict)
    cancelled: int = 0
    stuck: bool = False
    cancelling: asyncio.Event = field(default_factory=asyncio.Event)
    changed: threading.Condition = field(default_factory=threading.Condition)

    async def ready(self) -> WorkerReady:
        return READY

    def begin(self, request: Submit, recipient: Recipient) -> None:
        self.submitted.append(request)
        self._change(running=1)
        playing = asyncio.ensure_future(self._play(request, recipient))
        self._playing[request.request_id] = playing
        self._recipients[request.request_id] = recipient

    def leave(self, request_id: int) -> None:
        playing = self._playing.pop(request_id, None)
        if playing is not None:
            playing.cancel()

    async def _play(self, request: Submit, recipient: Recipient) -> None:
        """The script's events; one that stops too early fails, as the worker never does."""
        complete = False
        try:
            async with contextlib.aclosing(self.script(request)) as events:
                async for event in events:
                    complete = ends(event)
                    if recipient.take(event):
                        recipient.deliver()
            if not complete:
                complete = True
                if recipient.take(FailedEvent(request.request_id, "the script has ended")):
                    recipient.deliver()
        except HeliosError as error:
            recipient.fail(error)
        finally:
            self._change(running=-1, cancelled=0 if complete else 1)

    def cancel(self, request_id: int) -> None:
        """As the worker: what the script has still to say isn't heard."""
        found = self._recipients.pop(request_id, None)
        if found is not None:
            self.leave(request_id)
            if found.take(TokensEvent(request_id, [], [], Finish.CANCELLED)):
                found.deliver()

    def cancel_all(self) -> None:
        self.cancelling.set()

    async def statistics(self) -> Statistics:
        if self.stuck:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        return scripted_statistics()

    async def reset_prefix_cache(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.resets += 1

    async def ask_peers(self, kind: str, payload: bytes) -> list[bytes]:
        return []

    def answer_peers(self, answer: AnswerPeer) -> None:
        return None

    async def close(self) -> None:
        return None

    def _change(self, *, running: int, cancelled: int = 0) -> None:
        with self.changed:
            self.running += running
            self.cancelled += cancelled
            self.changed.notify_all()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Blocks the test until `condition` holds; raises if it never does."""
        with self.changed:
            assert self.changed.wait_for(condition, timeout=60)


@dataclass
class RunningServer:
    """A server that takes requests at `url`."""

    url: str
    client: ScriptedClient
    lifecycle: Lifecycle
    http: httpx.Client
    stop: Callable[[], None]

    def metrics(self) -> dict[str, float]:
        """Samples of `/metrics` by name and labels, as they are written."""
        lines = self.http.get("/metrics").text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}


def served_model(
    client: ScriptedClient, *, permits: int = 8, frontend: Frontend = FRONTEND
) -> ServedModel:
    return ServedModel(
        frontend=frontend,
        client=client,
        admission=Admission(permits),
        preparation=ThreadPoolExecutor(1),
        namespace="tests",
        digest="0123456789abcdef",
        ready=READY,
        created=1_700_000_000,
    )


@contextlib.contextmanager
def running_server(
    script: Script,
    *,
    permits: int = 8,
    options: HttpOptions = OPTIONS,
    loaded: bool = True,
    times: EndTimes | None = None,
    frontend: Frontend = FRONTEND,
    send_buffer_nbytes: int | None = None,
) -> Iterator[RunningServer]:
    """Serves `script` until the block ends. With `loaded` false the model is missing;
    `send_buffer_nbytes` is about what the kernel takes of an answer that nobody reads."""
    lifecycle = Lifecycle()
    client = ScriptedClient(script)
    if loaded:
        lifecycle.serve(served_model(client, permits=permits, frontend=frontend))
    app = build_app(lifecycle, options)
    listener = socket.create_server(("127.0.0.1", 0))
    if send_buffer_nbytes is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_nbytes)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = HttpServer(app, lifecycle, times or EndTimes(answers=0.5, delivery=0.5), options)
    loops: SimpleQueue[asyncio.AbstractEventLoop] = SimpleQueue()

    async def serve() -> None:
        loops.put(asyncio.get_running_loop())
        await server.run_on(listener)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    loop = loops.get()

    def stop() -> None:
        with contextlib.suppress(RuntimeError):  # it has ended
            loop.call_soon_threadsafe(server.stop)

    try:
        with httpx.Client(base_url=url, timeout=60) as http:
            yield RunningServer(url, client, lifecycle, http, stop)
    finally:
        stop()
        thread.join()
