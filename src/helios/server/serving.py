"""Serving over a started worker: opens the core for the frontend, runs HTTP, ends cleanly.

`server` calls it once the worker process is on its way, since what is imported here takes as long
as that process needs to start.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import uvicorn

from helios.core import OpenedCore
from helios.errors import HeliosError
from helios.frontend.bootstrap import Bootstrap, Frontend
from helios.frontend.prepare import unapplied_recommendations
from helios.server.admission import Admission
from helios.server.app import build_app
from helios.server.lifecycle import Lifecycle, ServedModel, WorkerClient
from helios.sizes import show_size
from helios.worker.messages import WorkerReady
from helios.worker.options import WorkerOptions
from helios.worker.served_core import open_served_core

DRAIN_SECONDS: Final = 5
_DEFAULT_FRONTEND_WORKERS: Final = 2
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


async def serve_http(
    client: WorkerClient,
    listener: socket.socket,
    worker: WorkerOptions,
    report: Callable[[str], None],
    frontend_workers: int | None = None,
) -> None:
    """Serves on `listener` until a signal; `frontend_workers` None takes the core's. Raises
    HeliosError if core or model can't be loaded."""
    lifecycle = Lifecycle()
    loading = asyncio.create_task(_load(lifecycle, client, worker, report, frontend_workers))
    config = uvicorn.Config(
        build_app(lifecycle),
        http="h11",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    http = _HttpServer(config, lifecycle)
    loading.add_done_callback(http.stop_after_failure)
    await http.serve(sockets=[listener])
    loading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await loading


async def _load(
    lifecycle: Lifecycle,
    client: WorkerClient,
    worker: WorkerOptions,
    report: Callable[[str], None],
    frontend_workers: int | None,
) -> None:
    """Waits until core and worker are there, then serves. A failure stays in the lifecycle and
    is raised."""
    try:
        core, frontend = await asyncio.to_thread(_open, lifecycle, worker)
        lifecycle.core_opened()
        ready = await client.ready()
    except HeliosError as error:
        lifecycle.fail(error)
        raise
    lifecycle.startup_ms.update(
        {f"worker_{phase}": round(ms, 1) for phase, ms in ready.startup_ms.items()}
    )
    lifecycle.mark("ready")
    model = _served_model(core, frontend, client, ready, frontend_workers)
    lifecycle.serve(model)
    for recommended in unapplied_recommendations(frontend.contract.defaults.sampling):
        report(f"note: the core recommends {recommended}, which isn't applied yet")
    phases = ", ".join(f"{name} {ms:.0f}" for name, ms in lifecycle.startup_ms.items())
    report(
        f"ready: {', '.join(model.names)} on {ready.kernel_path}, {_capacities(ready)}"
        f" (ms: {phases})"
    )


def _capacities(ready: WorkerReady) -> str:
    """The capacities that resulted, for the operator."""
    parts = [
        f"{ready.request_slots} slots",
        f"queue of {ready.queue_capacity}",
        f"{ready.cache_pages * ready.page_tokens} tokens of cache"
        f" ({show_size(ready.cache_nbytes)})",
        f"context of {ready.max_context_tokens}",
    ]
    if ready.speculative_width:
        parts.append(f"speculative width {ready.speculative_width}")
    return ", ".join(parts)


def _open(lifecycle: Lifecycle, worker: WorkerOptions) -> tuple[OpenedCore, Frontend]:
    core = open_served_core(worker)
    lifecycle.mark("core")
    frontend = Bootstrap.load(core)
    lifecycle.mark("frontend")
    return core, frontend


def _served_model(
    core: OpenedCore,
    frontend: Frontend,
    client: WorkerClient,
    ready: WorkerReady,
    frontend_workers: int | None,
) -> ServedModel:
    recommended = frontend.contract.defaults.frontend_workers
    workers = frontend_workers or recommended or _DEFAULT_FRONTEND_WORKERS
    return ServedModel(
        frontend=frontend,
        client=client,
        admission=Admission(ready.queue_capacity + ready.request_slots),
        preparation=ThreadPoolExecutor(workers, "helios prepare"),
        namespace=core.acceptance.namespace,
        digest=core.digest,
        ready=ready,
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
