"""The metrics of the HTTP processes and of the server as a whole: names, kinds, meanings."""

from __future__ import annotations

import platform
from typing import Final

from helios.process_usage import ProcessUsage
from helios.server.exposition import Family, counter, counters, gauge, gauges, histogram
from helios.server.http_snapshot import HttpSnapshot
from helios.server.lifecycle import Lifecycle, ServedModel
from helios.version import VERSION

PREFIX: Final = "flare_"

_HISTOGRAMS: Final = {
    "http_preparation_seconds": "From the request for a preparation thread to the prompt's tokens.",
    "request_first_token_seconds": "From a request read to its first token from the worker.",
    "inter_token_seconds": "Between tokens of an answer; 0 for those that came with another.",
    "request_decode_seconds": "From the first token of a complete answer to its last event.",
    "request_end_to_end_seconds": "From a request read to the last event of its complete answer.",
    "request_prompt_tokens": "Tokens of prompts that got a first token, once for all choices.",
    "request_output_tokens": "Tokens of complete answers.",
    "request_output_limit_tokens": "Most tokens that requests with a first token may have.",
}


def server_families(lifecycle: Lifecycle, *, worker_up: bool) -> list[Family]:
    """What runs here, how it started, what it has room for."""
    model = lifecycle.model
    info = {
        "model": model.served_id if model else "",
        "version": VERSION,
        "core": model.digest if model else "",
        "kernel_path": model.kernel_path if model else "",
        "python": platform.python_version(),
    }
    families = [
        gauges(f"{PREFIX}build_info", "What runs here, as labels; always 1.", [(info, 1)]),
        gauge(f"{PREFIX}ready", "1 while requests are taken.", lifecycle.readiness().ready),
        gauge(f"{PREFIX}worker_up", "1 if the model worker has answered this scrape.", worker_up),
        gauge(
            f"{PREFIX}stalled",
            "1 while the device doesn't move although there is work for it.",
            bool(lifecycle.stalled),
        ),
        *_startup_families(lifecycle.startup_ms),
    ]
    return families if model is None else families + _capacity_families(model)


def http_families(snapshot: HttpSnapshot) -> list[Family]:
    """What the HTTP processes have counted together, and hold now."""
    responses = [
        ({"route": route, "status": str(status)}, count)
        for route, statuses in sorted(snapshot.responses.items())
        for status, count in sorted(statuses.items())
    ]
    p = PREFIX
    return [
        gauge(f"{p}http_processes", "HTTP processes that this scrape counts.", snapshot.processes),
        counters(f"{p}http_responses_total", "Responses begun, by route and status.", responses),
        counter(
            f"{p}http_disconnects_total",
            "Generation requests whose client went away before their end.",
            snapshot.disconnects,
        ),
        counter(
            f"{p}http_refused_total",
            "Requests refused with 429, for want of a permit.",
            snapshot.refused,
        ),
        gauge(f"{p}http_permits", "Admission permits in use.", snapshot.permits_held),
        gauge(
            f"{p}http_preparing", "Prompts that preparation threads work on.", snapshot.preparing
        ),
        gauge(
            f"{p}http_preparation_queue",
            "Prompts that wait for a preparation thread.",
            snapshot.preparation_waiting,
        ),
        gauge(
            f"{p}http_preparation_slots",
            "Prompts that can be prepared at once.",
            snapshot.preparation_slots,
        ),
        *(
            histogram(f"{p}{name}", text, snapshot.histograms[name])
            for name, text in _HISTOGRAMS.items()
        ),
    ]


def usage_families(by_process: dict[str, ProcessUsage]) -> list[Family]:
    """What kinds of processes take of the machine."""
    return [
        gauges(
            f"{PREFIX}process_resident_bytes",
            "Resident memory, by kind of process; several HTTP processes together.",
            [({"process": name}, usage.resident_nbytes) for name, usage in by_process.items()],
        ),
        counters(
            f"{PREFIX}process_cpu_seconds_total",
            "CPU time of all threads, by kind of process.",
            [({"process": name}, usage.cpu_s) for name, usage in by_process.items()],
        ),
    ]


def _startup_families(startup_ms: dict[str, float]) -> list[Family]:
    """`ready` is the whole of it; the worker's phases run beside the HTTP process's."""
    phases = [
        (
            {
                "process": "worker" if name.startswith("worker_") else "http",
                "phase": name.removeprefix("worker_"),
            },
            ms / 1e3,
        )
        for name, ms in startup_ms.items()
        if name != "ready"
    ]
    families = [
        gauges(
            f"{PREFIX}startup_phase_seconds",
            "How long each phase of start-up took.",
            phases,
        )
    ]
    if "ready" in startup_ms:
        families.append(
            gauge(
                f"{PREFIX}startup_seconds",
                "From the HTTP process's beginning to load until requests were taken.",
                startup_ms["ready"] / 1e3,
            )
        )
    return families


def _capacity_families(model: ServedModel) -> list[Family]:
    """What load-time selection resulted in."""
    ready = model.ready
    tokens = ready.cache_pages * ready.page_tokens
    return [
        gauge(f"{PREFIX}{name}", text, value)
        for name, text, value in (
            ("http_permit_capacity", "Admission permits in all.", model.admission.capacity),
            ("request_slots", "Requests that can run at once.", ready.request_slots),
            ("queue_capacity", "Requests that can wait for a slot.", ready.queue_capacity),
            ("context_tokens", "Tokens of the longest request.", ready.max_context_tokens),
            ("speculative_width", "Target tokens a lane; 0 is none.", ready.speculative_width),
            ("cache_pages", "Pages of the attention cache.", ready.cache_pages),
            ("cache_tokens", "Tokens that the attention cache holds.", tokens),
            ("cache_bytes", "Memory of the attention cache.", ready.cache_nbytes),
            ("snapshot_rows", "Snapshots that there is room for.", ready.snapshots),
            ("prefix_reuse", "1 where prompts may begin from earlier ones.", ready.prefix_reuse),
        )
    ]
