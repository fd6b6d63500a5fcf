"""The server: one HTTP process over one model worker, from start-up to the last connection.

Start-up overlaps: the worker process loads the model while this one opens the core for its
tokenizer and template. The listener is up from the first moment; `/ready` says when requests are
answered. `cli` is the caller; tests drive the application without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import uvicorn

from helios.core import OpenedCore, open_core
from helios.errors import HeliosError
from helios.frontend.bootstrap import Bootstrap, Frontend
from helios.server.admission import Admission
from helios.server.app import build_app
from helios.server.lifecycle import Lifecycle, ServedModel, WorkerClient
from helios.worker.client import ModelClient
from helios.worker.messages import WorkerReady
from helios.worker.options import WorkerOptions

DRAIN_SECONDS: Final = 5
_DEFAULT_FRONTEND_WORKERS: Final = 2
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where to listen and what the worker is told. Port 0 takes any free one."""

    host: str
    port: int
    worker: WorkerOptions


class Server:
    """`report` gets a line about each step that an operator wants to know."""

    def __init__(self, options: ServerOptions, report: Callable[[str], None]) -> None:
        self._options = options
        self._report = report
        self._lifecycle = Lifecycle()

    def start(self) -> None:
        """Serves until SIGTERM or SIGINT. Raises HeliosError if the address can't be had or the
        model can't be loaded."""
        with _listen(self._options.host, self._options.port) as listener:
            asyncio.run(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        client = await ModelClient.start(self._options.worker)
        try:
            await self._serve_over(client, listener)
        finally:
            await client.close()

    async def _serve_over(self, client: WorkerClient, listener: socket.socket) -> None:
        loading = asyncio.create_task(self._load(client))
        config = uvicorn.Config(
            build_app(self._lifecycle),
            http="h11",
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=DRAIN_SECONDS,
        )
        http = _HttpServer(config, self._lifecycle)
        loading.add_done_callback(lambda task: http.stop_after_failure(task))
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        self._report(f"listening on http://{shown}:{port}")
        await http.serve(sockets=[listener])
        loading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await loading

    async def _load(self, client: WorkerClient) -> None:
        """Waits until core and worker are there, then serves. A failure stays in the lifecycle
        and is raised."""
        lifecycle = self._lifecycle
        try:
            core, frontend = await asyncio.to_thread(self._open)
            lifecycle.core_opened()
            ready = await client.ready()
        except HeliosError as error:
            lifecycle.fail(error)
            raise
        lifecycle.startup_ms.update(
            {f"worker_{phase}": round(ms, 1) for phase, ms in ready.startup_ms.items()}
        )
        lifecycle.mark("ready")
        model = _served_model(core, frontend, client, ready, self._options.worker)
        lifecycle.serve(model)
        phases = ", ".join(f"{name} {ms:.0f}" for name, ms in lifecycle.startup_ms.items())
        self._report(
            f"ready: {', '.join(model.names)} on {ready.kernel_path}, {ready.request_slots} slots,"
            f" {ready.cache_pages * ready.page_tokens} tokens of cache (ms: {phases})"
        )

    def _open(self) -> tuple[OpenedCore, Frontend]:
        worker = self._options.worker
        core = open_core(worker.core, accept=worker.accept, publisher_key=worker.publisher_key)
        self._lifecycle.mark("core")
        frontend = Bootstrap.load(core)
        self._lifecycle.mark("frontend")
        return core, frontend


def _served_model(
    core: OpenedCore,
    frontend: Frontend,
    client: WorkerClient,
    ready: WorkerReady,
    options: WorkerOptions,
) -> ServedModel:
    defaults = frontend.contract.defaults
    # The worker's own queue is the bound; a core may ask for a shorter one.
    queue = options.scheduler.queue_capacity
    if defaults.queue_capacity is not None:
        queue = min(queue, defaults.queue_capacity)
    workers = defaults.frontend_workers or _DEFAULT_FRONTEND_WORKERS
    return ServedModel(
        frontend=frontend,
        client=client,
        admission=Admission(queue + ready.request_slots),
        preparation=ThreadPoolExecutor(workers, "helios prepare"),
        namespace=core.acceptance.namespace,
        digest=core.digest,
        kernel_path=ready.kernel_path,
        created=int(time.time()),
    )


class _HttpServer(uvicorn.Server):
    """uvicorn with this server's ends: a signal drains, a second one drops everything, a failed
    start-up ends at once."""

    def __init__(self, config: uvicorn.Config, lifecycle: Lifecycle) -> None:
        super().__init__(config)
        self._lifecycle = lifecycle

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals drain; they aren't raised again afterwards, since this is the clean end."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        if self.should_exit:
            self.force_exit = True
        self._lifecycle.drain()
        self.should_exit = True

    def stop_after_failure(self, loading: asyncio.Task[None]) -> None:
        """Ends serving if loading failed."""
        if not loading.cancelled() and loading.exception() is not None:
            self.force_exit = self.should_exit = True


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises HeliosError naming the address."""
    where = f"{host}:{port}"
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise HeliosError(
            f"can't listen here ({error.strerror or error})",
            where=where,
            remedy="Choose another --host or --port, or stop what listens there",
        ) from error
