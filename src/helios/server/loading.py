"""What an HTTP process loads, the first one like the others: the frontend, and once the worker is
ready a model to serve.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from helios import collector
from helios.core import OpenedCore
from helios.dataclass import dataclass
from helios.errors import HeliosError
from helios.frontend.bootstrap import Bootstrap, Frontend
from helios.server.admission import Admission
from helios.server.lifecycle import Lifecycle, ServedModel, WorkerClient
from helios.server.server import ServerOptions
from helios.server.shared_permits import SharedPermits
from helios.thread_turns import shorten_turns
from helios.worker.messages import WorkerReady

_DEFAULT_FRONTEND_WORKERS: Final = 2


@dataclass(frozen=True, slots=True)
class Loading:
    """What a process serves with. `permits` are those of several processes; the server was
    `created` at this Unix time."""

    core: OpenedCore
    options: ServerOptions
    permits: SharedPermits | None
    created: int


async def load(lifecycle: Lifecycle, client: WorkerClient, loading: Loading) -> ServedModel:
    """Waits until frontend and worker are there, then serves. A failure stays in the lifecycle and
    is raised."""
    core = loading.core
    try:
        # In this thread: the tokenizer's library keeps the interpreter all the while, so that the
        # event loop stands still in any case, and in another thread its allocations cost more.
        frontend = Bootstrap.load(core)
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
    model = _served_model(frontend, client, ready, loading)
    collector.settle()
    shorten_turns()
    lifecycle.serve(model)
    return model


def _served_model(
    frontend: Frontend, client: WorkerClient, ready: WorkerReady, loading: Loading
) -> ServedModel:
    core, frontend_workers = loading.core, loading.options.frontend_workers
    recommended = frontend.contract.defaults.frontend_workers
    workers = frontend_workers or recommended or _DEFAULT_FRONTEND_WORKERS
    # They are counted over all HTTP processes.
    workers = max(1, workers // loading.options.http_workers)
    return ServedModel(
        frontend=frontend,
        client=client,
        admission=Admission(ready.queue_capacity + ready.request_slots, loading.permits),
        preparation=ThreadPoolExecutor(workers, "helios prepare"),
        namespace=core.acceptance.namespace,
        digest=core.digest,
        ready=ready,
        created=loading.created,
        preparation_slots=workers,
    )
