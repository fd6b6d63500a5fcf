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
from functools import partial
from typing import Final

from helios.core import OpenedCore
from helios.errors import HeliosError
from helios.frontend.sampling import unapplied_recommendations
from helios.runtime.sampling_rules import sampling_rules
from helios.server.app import build_app
from helios.server.end_signals import EndSignals
from helios.server.http_server import HttpServer
from helios.server.lifecycle import Lifecycle, Phase, WorkerClient
from helios.server.listeners import url_of
from helios.server.liveness import DeviceWatch, follow
from helios.server.loading import Loading, load
from helios.server.options_in_force import options_in_force
from helios.server.other_processes import OtherProcesses
from helios.server.server import ServerOptions
from helios.wording import counted, show_size
from helios.worker.client import ModelClient
from helios.worker.launch import LaunchedWorker
from helios.worker.messages import WorkerReady

# For the round in flight, seconds; a worker that is stuck is killed then.
_DRAIN_S: Final = 30.0
_HURRIED_DRAIN_S: Final = 2.0
_TIERS: Final = {"host": "offload memory", "files": "prompt cache"}


def serve(
    core: OpenedCore,
    worker: LaunchedWorker,
    listener: socket.socket,
    report: Callable[[str], None],
    options: ServerOptions,
    signals: EndSignals,
) -> HeliosError | None:
    """Serves on `listener` until a signal, then ends the worker; why the model couldn't serve any
    more, if it failed before. Raises HeliosError if frontend or model can't be loaded."""
    return asyncio.run(_serve(core, worker, listener, report, options, signals))


async def _serve(
    core: OpenedCore,
    worker: LaunchedWorker,
    listener: socket.socket,
    report: Callable[[str], None],
    options: ServerOptions,
    signals: EndSignals,
) -> HeliosError | None:
    loop = asyncio.get_running_loop()
    client = await ModelClient.attach(worker, options.http_workers)
    others = None
    if options.http_workers > 1:
        assert worker.door is not None, "others need a way in"
        others = OtherProcesses(options, worker.door, listener)
    try:
        watch = DeviceWatch(options.http.liveness.stall_timeout_s)
        lifecycle = Lifecycle(watch, options_in_force(options))
        http = HttpServer(
            build_app(lifecycle, options.http),
            lifecycle,
            options=options.http,
            when_stopped=None if others is None else others.stop,
        )
        with signals.obeyed_by(partial(loop.call_soon_threadsafe, http.stop)):
            url = url_of(listener, tls=options.http.tls is not None)
            loading = asyncio.create_task(
                _load(lifecycle, core, client, report, options, others, url)
            )
            loading.add_done_callback(http.stop_after_failure)
            following = asyncio.create_task(follow(client, watch), name="helios device watch")
            await http.run_on(listener)
            following.cancel()
            loading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await loading
            if others is not None:
                # They were told to stop with this one, and end when their own answers have.
                await others.end(http.times.backstop)
            failed = lifecycle.error
            # The device's work isn't cut off with the connections: who owns it says when it's done.
            patience = _HURRIED_DRAIN_S if http.hurried else _DRAIN_S
            http.hurry.clear()
            await client.close(patience, http.hurry)
            # Whoever is killed here, or ends well, has not failed.
            return failed or (client.failure if (worker.process.returncode or 0) > 0 else None)
    finally:
        if others is not None:
            await others.end()
        await client.close()


async def _load(
    lifecycle: Lifecycle,
    core: OpenedCore,
    client: WorkerClient,
    report: Callable[[str], None],
    options: ServerOptions,
    others: OtherProcesses | None,
    url: str,
) -> None:
    """Loads and serves, in the other processes too, and says so: where it listens once nothing can
    be refused any more, so that the line is a promise."""
    permits = None if others is None else others.permits
    loading = Loading(core, options, permits, int(time.time()))
    model = await load(lifecycle, client, loading)
    ready = model.ready
    if ready.queue_capacity < options.http_workers:
        raise HeliosError(
            f"{options.http_workers} processes can't share a queue of {ready.queue_capacity}",
            where="--http-workers",
            remedy="Use fewer, or a larger --queue-capacity",
        )
    if lifecycle.phase is Phase.DRAINING:
        return  # told to end before it could serve
    report(f"listening on {url}")
    contract = model.frontend.contract
    rules = sampling_rules(contract.model.graphs)
    for recommended in unapplied_recommendations(contract.defaults.sampling, rules):
        report(f"note: the core recommends {recommended}, which its programs don't apply")
    phases = ", ".join(
        f"{name} {ms:.0f}" for name, ms in lifecycle.startup_ms.items() if "." not in name
    )
    report(
        f"ready: {', '.join(model.names)} on {ready.kernel_path}, {_capacities(ready)}"
        f" (ms: {phases})"
    )
    if others is not None:
        serving = await others.start(loading.created)
        report(f"serving with {1 + serving} of {options.http_workers} HTTP processes")


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
