"""A whole server over a device that completes a round when the test says so.

Sockets, HTTP, frontend, client, channel, worker loop, scheduler and packing are the real ones, over
the programs of a real core; only the device is scripted. So a test can hold everything still with a
request exactly where it wants it, and say round by round what happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import httpx

from helios.contract.enums import Operation, ValueSource
from helios.core import OpenedCore, open_core
from helios.runtime.devices.scripted import ScriptedDevice
from helios.runtime.lanes import ADMITTING
from helios.runtime.manifest import Program
from helios.runtime.model_runtime import Capacities, ModelRuntime
from helios.runtime.targets import deployed_rank, read_manifest
from helios.scheduler import SchedulerOptions
from helios.scheduler.scheduler import Scheduler
from helios.server.app import build_app
from helios.server.http_server import EndTimes, HttpServer
from helios.server.lifecycle import Lifecycle
from helios.server.loading import Loading, load
from helios.server.server import ServerOptions
from helios.worker.channel import SocketChannel
from helios.worker.client import ModelClient
from helios.worker.messages import WorkerReady
from helios.worker.model_worker import ModelWorker
from helios.worker.options import WorkerOptions
from tests.server.real import NAMESPACE
from tests.server.scripted import OPTIONS

DEADLINE_S = 60


def token_at(slot: int, position: int) -> tuple[int, float]:
    """Every request gets the same tokens, by their positions; none ends a sequence."""
    return 5 + position % 80, -0.5


@dataclass(frozen=True, slots=True)
class SubmittedRound:
    """What the worker asked of the device: which slots had a lane in it."""

    operation: Operation
    slots: tuple[int, ...]


class SteppedDevice(ScriptedDevice):
    """Rounds wait until `step` lets them complete, or `run_freely` all of them. `rounds` has what
    was submitted, sequence 1 first; `waited_for` is the round that the worker waits for."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, token_at)
        self.rounds: list[SubmittedRound] = []
        self.waited_for = 0
        self.changed = threading.Condition()
        self._allowed = 0
        self._free = False

    @property
    def allowed(self) -> int:
        """The last round that may complete."""
        return self._allowed

    def step(self, rounds: int = 1) -> None:
        """Lets so many more rounds complete."""
        with self.changed:
            self._allowed += rounds
            self.changed.notify_all()

    def run_freely(self) -> None:
        """Lets all rounds complete from now on."""
        with self.changed:
            self._free = True
            self.changed.notify_all()

    def submit(self, program: int, frame: int, sequence: int) -> None:
        """Queues; notes which slots have lanes."""
        super().submit(program, frame, sequence)
        named: Program = self._programs[program]
        slots: Sequence[int] = ()
        if named.completion or named.operation in ADMITTING:
            slots = self._inputs(named, frame)[ValueSource.SLOT]
        with self.changed:
            self.rounds.append(SubmittedRound(named.operation, tuple(slots)))
            self.changed.notify_all()

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Waits for the test."""
        with self.changed:
            self.waited_for = sequence
            self.changed.notify_all()
            passes = self.changed.wait_for(
                lambda: self._free or sequence <= self._allowed, timeout_ms / 1e3
            )
        return passes and super().wait(sequence, timeout_ms)


@dataclass
class ThreadAsProcess:
    """The worker's thread as the client has it: its process."""

    thread: threading.Thread
    killed: bool = False

    def wait(self) -> int:
        """Returns when the thread has ended."""
        self.thread.join()
        return 0

    def kill(self) -> None:
        """A thread can't be."""
        self.killed = True


@dataclass
class SteppedServer:
    """A server that takes requests at `url`, and its parts."""

    url: str
    http: httpx.Client
    device: SteppedDevice
    scheduler: Scheduler
    worker: ModelWorker
    lifecycle: Lifecycle
    process: ThreadAsProcess
    client: ModelClient = field(repr=False)
    stop: Callable[[], None] = field(repr=False)

    def until(self, condition: Callable[[], bool]) -> None:
        """Blocks until `condition`, which asks the worker's side, holds. It is asked whenever the
        device is, and now and then besides."""
        with self.device.changed:
            for _ in range(DEADLINE_S * 50):
                if condition():
                    return
                self.device.changed.wait(0.02)
        raise AssertionError("it never came true")

    def until_idle(self) -> None:
        """Blocks until the worker has nothing to do, and has put everything away."""
        self.until(lambda: self.scheduler.idle)
        # The last request may be just leaving. The worker answers between its turns.
        while not self.metrics()["flare_worker_up"]:
            pass

    def metrics(self) -> dict[str, float]:
        """Samples of `/metrics` by name and labels, as they are written."""
        lines = self.http.get("/metrics").text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    @property
    def permits(self) -> int:
        """Permits that are held now."""
        assert self.lifecycle.model is not None
        return self.lifecycle.model.admission.held

    def until_permits(self, held: int) -> None:
        """Blocks until so many permits are held. They are asked for over and over: they come and
        go in another thread."""
        for _ in range(10_000):
            if self.permits == held:
                return
            self.http.get("/health")
        raise AssertionError(f"{self.permits} permits are held, not {held}")

    def assert_balanced(self) -> None:
        """Nothing is held for anybody, and nothing is lost."""
        self.until_idle()
        self.scheduler.check_books()
        slots, cache = self.scheduler.slots, self.scheduler.cache
        assert slots.free == slots.slots
        assert cache.pages.free + cache.evictable_pages == cache.pages.pages
        assert cache.rows.free + cache.evictable_rows == cache.rows.rows
        assert not self.worker._requests.ingress
        self.until_permits(0)


def _ready(runtime: ModelRuntime, options: SchedulerOptions, event_capacity: int) -> WorkerReady:
    geometry = runtime.geometry
    return WorkerReady(
        kernel_path=geometry.kernel_path,
        request_slots=geometry.request_slots,
        speculative_width=geometry.speculative_width,
        cache_pages=geometry.cache_pages,
        cache_nbytes=geometry.cache_nbytes,
        page_tokens=geometry.page_tokens,
        max_context_tokens=geometry.max_context_tokens,
        queue_capacity=options.queue_limit,
        startup_ms={},
        snapshots=geometry.snapshot_rows,
        event_capacity=event_capacity,
    )


def _load(core: OpenedCore, capacities: Capacities) -> tuple[ModelRuntime, SteppedDevice]:
    rank = deployed_rank(core, "cpu")
    manifest = read_manifest(core, rank)
    device = SteppedDevice(core.contract, manifest)
    weights = {name: core.map_weights(name, verify=False).content for name in rank.weight_resources}
    return ModelRuntime(core.contract, manifest, weights, device, capacities), device


@contextlib.contextmanager
def stepped_server(
    core_folder: Path,
    *,
    slots: int = 2,
    queue_capacity: int = 2,
    cache_nbytes: int | None = None,
    frontend_workers: int = 1,
    event_capacity: int = 0,
    prefix_reuse: bool = True,
    times: EndTimes | None = None,
) -> Iterator[SteppedServer]:
    """Serves until the block ends, which lets all rounds complete. What the kernel takes of an
    answer that nobody reads is little."""
    core = open_core(core_folder, accept=NAMESPACE)
    capacities = Capacities(request_slots=slots, cache_nbytes=cache_nbytes)
    runtime, device = _load(core, capacities)
    options = SchedulerOptions(queue_capacity=queue_capacity, prefix_reuse=prefix_reuse)
    ours, theirs = socket.socketpair()
    channel = SocketChannel(theirs)
    channel.send([_ready(runtime, options, event_capacity)])
    worker = ModelWorker(runtime, channel, options)

    def run() -> None:
        try:
            worker.run()
        finally:
            channel.close()

    thread = threading.Thread(target=run)
    process: Any = ThreadAsProcess(thread)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    lifecycle = Lifecycle()
    server = HttpServer(
        build_app(lifecycle, OPTIONS), lifecycle, times or EndTimes(answers=0.5, delivery=0.5)
    )
    begun: SimpleQueue[tuple[asyncio.AbstractEventLoop, ModelClient]] = SimpleQueue()

    async def serve() -> None:
        reader, writer = await asyncio.open_connection(sock=ours)
        client = ModelClient(process, reader, writer, 1)
        server_options = ServerOptions(
            "", 0, WorkerOptions(core="", accept=NAMESPACE), frontend_workers
        )
        await load(lifecycle, client, Loading(core, server_options, None, 0))
        begun.put((asyncio.get_running_loop(), client))
        await server.run_on(listener)
        await client.close()

    http_thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    http_thread.start()
    loop, client = begun.get()

    def stop() -> None:
        with contextlib.suppress(RuntimeError):  # it has ended
            loop.call_soon_threadsafe(server.stop)

    try:
        with httpx.Client(base_url=url, timeout=DEADLINE_S) as http:
            yield SteppedServer(
                url, http, device, worker.scheduler, worker, lifecycle, process, client, stop
            )
    finally:
        device.run_freely()
        stop()
        http_thread.join()
        thread.join()
        runtime.close()
