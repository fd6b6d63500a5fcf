"""`helios serve`: its options, and the server that they make.

Options about the core and how it runs are shared with other commands (`cli_options`), those about
HTTP alone are in `cli_http_options`.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

from helios.cli_http_options import (
    DEFAULT_LIMITS,
    ApiKey,
    ApiKeyFile,
    BodyTimeout,
    CorsOrigin,
    ForwardedAllowIps,
    HeadTimeout,
    KeepAlive,
    LogFormatOption,
    LogLevelOption,
    MaxBodySize,
    MaxConnections,
    NoAccessLog,
    OpenMetrics,
    RequestTimeout,
    RootPath,
    ShutdownTimeout,
    StrictFields,
    TlsCert,
    TlsClientCa,
    TlsKey,
    TlsKeyPasswordFile,
    WriteTimeout,
)
from helios.cli_options import (
    Accept,
    CapacityOptions,
    Core,
    FrontendWorkers,
    HistoryDrafting,
    Keeping,
    Machine,
    MaxStepMs,
    Mirrors,
    NoOracle,
    NoPrefixReuse,
    Opening,
    PrefillShare,
    QueueCapacity,
    SpeculativeWidth,
    Target,
)
from helios.command_line import Option, with_groups
from helios.errors import HeliosError
from helios.logs import LogOptions, logging_to_stderr

if TYPE_CHECKING:
    from helios.server.server import ServerOptions
    from helios.worker.launch import LaunchedWorker

VllmMetrics = Annotated[
    bool,
    Option(
        "Show metrics under vLLM's names too, for dashboards made for it.", name="--vllm-metrics"
    ),
]

HttpWorkers = Annotated[
    int,
    Option(
        minimum=1,
        maximum=64,
        help="Processes that speak HTTP; one keeps up with most models' tokens.",
    ),
]
StallTimeout = Annotated[
    float,
    Option(
        "Seconds without progress of the device, with work to do, after which /health says"
        " that the server is stalled.",
    ),
]


@with_groups
def asked_server(
    core: Core,
    accept: Accept,
    host: Annotated[str, Option("Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(minimum=0, maximum=65535, help="0 takes a free one.")] = 8000,
    *,
    target: Target = None,
    machine: Machine,
    capacities: CapacityOptions,
    keeping: Keeping,
    speculative_width: SpeculativeWidth = None,
    history_drafting: HistoryDrafting = False,
    queue_capacity: QueueCapacity = None,
    max_step_ms: MaxStepMs = None,
    prefill_share: PrefillShare = 0.5,
    no_prefix_reuse: NoPrefixReuse = False,
    frontend_workers: FrontendWorkers = None,
    http_workers: HttpWorkers = 1,
    opening: Opening,
    mirrors: Mirrors,
    no_oracle: NoOracle = False,
    stall_timeout: StallTimeout = 60.0,
    strict_fields: StrictFields = False,
    vllm_metrics: VllmMetrics = False,
    api_key: ApiKey = None,
    api_key_file: ApiKeyFile = None,
    open_metrics: OpenMetrics = False,
    cors_origin: CorsOrigin = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_key_password_file: TlsKeyPasswordFile = None,
    tls_client_ca: TlsClientCa = None,
    max_body_size: MaxBodySize = None,
    head_timeout: HeadTimeout = DEFAULT_LIMITS.head_timeout_s,
    body_timeout: BodyTimeout = DEFAULT_LIMITS.body_timeout_s,
    keep_alive: KeepAlive = DEFAULT_LIMITS.keep_alive_s,
    request_timeout: RequestTimeout = None,
    write_timeout: WriteTimeout = None,
    max_connections: MaxConnections = DEFAULT_LIMITS.max_connections,
    shutdown_timeout: ShutdownTimeout = DEFAULT_LIMITS.shutdown_timeout_s,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "text",
    no_access_log: NoAccessLog = False,
    root_path: RootPath = "",
    forwarded_allow_ips: ForwardedAllowIps = "",
) -> ServerOptions:
    """Serve a core over HTTP, with the OpenAI API."""
    from helios.scheduler.options import SchedulerOptions
    from helios.server.options import AccessOptions, HttpOptions, LimitOptions, ProxyOptions
    from helios.server.options.access import read_keys
    from helios.server.options.liveness import LivenessOptions
    from helios.server.options.tls import tls_options
    from helios.server.server import ServerOptions
    from helios.sizes import parse_size
    from helios.worker.options import WorkerOptions

    http = HttpOptions(
        access=AccessOptions(
            key_digests=read_keys(api_key or [], api_key_file or [], os.environ),
            open_metrics=open_metrics,
            origins=tuple(cors_origin or ()),
        ),
        limits=LimitOptions(
            max_body_nbytes=DEFAULT_LIMITS.max_body_nbytes
            if max_body_size is None
            else parse_size(max_body_size, "--max-body-size"),
            head_timeout_s=head_timeout,
            body_timeout_s=body_timeout,
            keep_alive_s=keep_alive,
            request_timeout_s=request_timeout,
            write_timeout_s=write_timeout,
            max_connections=max_connections,
            shutdown_timeout_s=shutdown_timeout,
        ),
        proxy=ProxyOptions(root_path.rstrip("/"), tuple(_listed(forwarded_allow_ips))),
        tls=tls_options(tls_cert, tls_key, tls_key_password_file, tls_client_ca),
        liveness=LivenessOptions(stall_timeout),
        strict_fields=strict_fields,
        vllm_metrics=vllm_metrics,
        log_access=not no_access_log,
    )
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
        target=target,
        **opening,
        **mirrors,
        **machine,
        **capacities,
        logs=LogOptions(level=log_level, format=log_format),
        **keeping,
    )
    return ServerOptions(host, port, worker, frontend_workers, http, http_workers)


def serve(options: ServerOptions, worker: LaunchedWorker | None = None) -> None:
    """Serves until it is told to end, with a worker that has been started, if there is one. Raises
    HeliosError where it can't; where lines of the log are JSON, it ends the process with such a
    line and status 2 instead. Where the model has failed meanwhile it ends the process with a line
    and status 1, so that who manages processes doesn't take it for a good end."""
    from helios.server.server import Server

    try:
        failed = Server(options, report=_report, worker=worker).start()
    except HeliosError as error:
        if options.logs.format == "text":
            raise  # the command says it, as every command does
        _end(options, str(error), 2)
    if failed is not None:
        _end(options, f"this server's model had failed: {failed}", 1)


def _end(options: ServerOptions, why: str, status: int) -> NoReturn:
    with logging_to_stderr(options.logs, "http"):
        logging.getLogger("helios").error(why)
    sys.exit(status)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _report(line: str) -> None:
    print(line, flush=True)
