"""`helios serve`: its options, and the server that they make.

Options about the core and how it runs are shared with other commands (`cli_options`); those about
HTTP alone are here, grouped as in `helios.server.options`.
"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from helios.cli_options import (
    Accept,
    AllowPrivateMirrors,
    AllowUnknownPublisher,
    CacheDir,
    CacheMemory,
    Core,
    CoreKey,
    FrontendWorkers,
    HistoryDrafting,
    InstructionSet,
    MaxActive,
    MaxStepMs,
    MirrorTimeout,
    NoOracle,
    NoPrefixReuse,
    OffloadMemory,
    PrefillShare,
    PromptCache,
    PromptCacheSize,
    PublisherKey,
    QueueCapacity,
    Snapshots,
    SpeculativeWidth,
    Threads,
    keeping_options,
    mirror_options,
    opening_options,
    running_options,
)

_LIMITS: Final = "Limits on clients"

StrictFields = Annotated[
    bool,
    typer.Option(
        "--strict-fields",
        help="Refuse body fields that nobody knows, instead of ignoring and naming them.",
    ),
]
VllmMetrics = Annotated[
    bool,
    typer.Option(
        "--vllm-metrics",
        help="Show metrics under vLLM's names too, for dashboards made for it.",
    ),
]
MaxBodySize = Annotated[
    str | None,
    typer.Option(help="Largest request body, like 64MiB; default: 16MiB.", rich_help_panel=_LIMITS),
]

StallTimeout = Annotated[
    float,
    typer.Option(
        help="Seconds without progress of the device, with work to do, after which /health says"
        " that the server is stalled.",
    ),
]


def serve(
    core: Core,
    accept: Accept,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    threads: Threads = None,
    isa: InstructionSet = None,
    max_active: MaxActive = None,
    cache_memory: CacheMemory = None,
    snapshots: Snapshots = None,
    prompt_cache: PromptCache = None,
    prompt_cache_size: PromptCacheSize = None,
    offload_memory: OffloadMemory = None,
    speculative_width: SpeculativeWidth = None,
    history_drafting: HistoryDrafting = False,
    queue_capacity: QueueCapacity = None,
    max_step_ms: MaxStepMs = None,
    prefill_share: PrefillShare = 0.5,
    no_prefix_reuse: NoPrefixReuse = False,
    frontend_workers: FrontendWorkers = None,
    publisher_key: PublisherKey = None,
    allow_unknown_publisher: AllowUnknownPublisher = False,
    core_key: CoreKey = None,
    cache_dir: CacheDir = None,
    allow_private_mirrors: AllowPrivateMirrors = False,
    mirror_timeout: MirrorTimeout = None,
    no_oracle: NoOracle = False,
    stall_timeout: StallTimeout = 60.0,
    strict_fields: StrictFields = False,
    vllm_metrics: VllmMetrics = False,
    max_body_size: MaxBodySize = None,
) -> None:
    """Serve a core over HTTP, with the OpenAI API."""
    opening = opening_options(publisher_key, allow_unknown_publisher, core_key)
    opening |= mirror_options(cache_dir, allow_private_mirrors, mirror_timeout)
    running = running_options(threads, isa, max_active, cache_memory, snapshots)
    keeping = keeping_options(prompt_cache, prompt_cache_size, offload_memory)
    from helios.scheduler.options import SchedulerOptions
    from helios.server.options import HttpOptions
    from helios.server.options.limits import LimitOptions
    from helios.server.options.liveness import LivenessOptions
    from helios.server.server import Server, ServerOptions
    from helios.sizes import parse_size
    from helios.worker.options import WorkerOptions

    limits = LimitOptions()
    if max_body_size is not None:
        limits = LimitOptions(max_body_nbytes=parse_size(max_body_size, "--max-body-size"))
    worker = WorkerOptions(
        core=str(core),
        accept=accept,
        oracle=not no_oracle,
        speculative_width=speculative_width,
        history_drafting=history_drafting,
        scheduler=SchedulerOptions(
            queue_capacity=queue_capacity,
            max_step_ms=max_step_ms,
            prefill_share=prefill_share,
            prefix_reuse=not no_prefix_reuse,
        ),
        **opening,
        **running,
        **keeping,
    )
    http = HttpOptions(
        limits=limits,
        liveness=LivenessOptions(stall_timeout),
        strict_fields=strict_fields,
        vllm_metrics=vllm_metrics,
    )
    options = ServerOptions(host, port, worker, frontend_workers, http)
    Server(options, report=_report).start()


def _report(line: str) -> None:
    print(line, flush=True)
