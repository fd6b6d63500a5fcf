"""Serving over a started worker: loads the frontend, runs HTTP, ends cleanly.

`server` calls it once the worker process is on its way, since what is imported here takes as long
as that process needs to start.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from helios.core import OpenedCore
from helios.errors import HeliosError
from helios.frontend.bootstrap import Bootstrap, Frontend
from helios.frontend.sampling import unapplied_recommendations
from helios.runtime.sampling_rules import sampling_rules
from helios.server.admission import Admission
from helios.server.app import build_app
from helios.server.http_server import HttpServer
from helios.server.lifecycle import Lifecycle, ServedModel, WorkerClient
from helios.server.liveness import DeviceWatch, follow
from helios.server.options_in_force import options_in_force
from helios.server.server import ServerOptions
from helios.wording import counted, show_size
from helios.worker.client import ModelClient
from helios.worker.launch import LaunchedWorker
from helios.worker.messages import WorkerReady

_DEFAULT_FRONTEND_WORKERS: Final = 2
_TIERS: Final = {"host": "offload memory", "files": "prompt cache"}


def serve(
    core: OpenedCore,
    worker: LaunchedWorker,
    listener: socket.socket,
    report: Callable[[str], None],
    options: ServerOptions,
) -> None:
    """Serves on `listener` until a signal, then ends the worker. Raises HeliosError if frontend or
    model can't be loaded."""
    asyncio.run(_serve(core, worker, listener, report, options))


async def _serve(
    core: OpenedCore,
    worker: LaunchedWorker,
    listener: socket.socket,
    report: Callable[[str], None],
    options: ServerOptions,
) -> None:
    client = await ModelClient.attach(worker)
    try:
        watch = DeviceWatch(options.http.liveness.stall_timeout_s)
        lifecycle = Lifecycle(watch, options_in_force(options))
        http = HttpServer(build_app(lifecycle, options.http), lifecycle, options=options.http)
        loading = asyncio.create_task(
            _load(lifecycle, core, client, report, options.frontend_workers)
        )
        loading.add_done_callback(http.stop_after_failure)
        following = asyncio.create_task(follow(client, watch), name="helios device watch")
        await http.run_on(listener)
        following.cancel()
        loading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await loading
    finally:
        await client.close()


async def _load(
    lifecycle: Lifecycle,
    core: OpenedCore,
    client: WorkerClient,
    report: Callable[[str], None],
    frontend_workers: int | None,
) -> None:
    """Waits until frontend and worker are there, then serves. A failure stays in the lifecycle and
    is raised."""
    try:
        frontend = await asyncio.to_thread(Bootstrap.load, core)
        lifecycle.mark("frontend")
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
    contract = frontend.contract
    rules = sampling_rules(contract.model.graphs)
    for recommended in unapplied_recommendations(contract.defaults.sampling, rules):
        report(f"note: the core recommends {recommended}, which its programs don't apply")
    phases = ", ".join(f"{name} {ms:.0f}" for name, ms in lifecycle.startup_ms.items())
    report(
        f"ready: {', '.join(model.names)} on {ready.kernel_path}, {_capacities(ready)}"
        f" (ms: {phases})"
    )


def _capacities(ready: WorkerReady) -> str:
    """The capacities that resulted, for the operator."""
    parts = [
        counted(ready.request_slots, "slot"),
        f"queue of {ready.queue_capacity}",
        f"{ready.cache_pages * ready.page_tokens} tokens of cache"
        f" ({show_size(ready.cache_nbytes)})",
        f"context of {ready.max_context_tokens}",
    ]
    if ready.snapshots:
        parts.append(counted(ready.snapshots, "snapshot"))
    if ready.speculative_width:
        parts.append(f"speculative width {ready.speculative_width}")
    if not ready.prefix_reuse:
        parts.append("no prefix reuse")
    for tier, nbytes in ready.tiers_nbytes.items():
        parts.append(f"{_TIERS[tier]} of {show_size(nbytes)}")
    return ", ".join(parts)


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
        preparation_slots=workers,
    )
