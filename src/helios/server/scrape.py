"""One scrape: everything that `/metrics` shows, gathered from the processes."""

from __future__ import annotations

import asyncio
from typing import Final

from helios.errors import HeliosError
from helios.server.exposition import Family, render
from helios.server.http_families import http_families, server_families, usage_families
from helios.server.http_snapshot import HttpSnapshot
from helios.server.lifecycle import Lifecycle, ServedModel
from helios.server.vllm_families import vllm_families
from helios.server.worker_families import worker_families
from helios.worker.messages import Statistics

_STATISTICS_SECONDS: Final = 1.0


async def scrape(lifecycle: Lifecycle, snapshot: HttpSnapshot, *, vllm_names: bool) -> bytes:
    """The exposition; `snapshot` is of all HTTP processes. A worker that doesn't answer in time
    leaves its numbers out."""
    model = lifecycle.model
    statistics = None if model is None else await _statistics(model)
    usage = {"http": snapshot.usage}
    families: list[Family] = server_families(lifecycle, worker_up=statistics is not None)
    families += http_families(snapshot)
    if statistics is not None:
        families += worker_families(statistics)
        usage["worker"] = statistics.usage
    families += usage_families(usage)
    if vllm_names and model is not None:
        families += vllm_families(snapshot, statistics, model)
    return render(families)


async def _statistics(model: ServedModel) -> Statistics | None:
    """None from a worker that is dead or doesn't answer."""
    try:
        async with asyncio.timeout(_STATISTICS_SECONDS):
            return await model.client.statistics()
    except (HeliosError, TimeoutError):
        return None
