"""What an HTTP process is told: frozen data, grouped by subject, one module a group.

`server.ServerOptions` carries all of it, the command line (`helios.cli_serve`) fills it in, and
`app.build_app` and `http_server` use it. Nothing here imports what HTTP needs, since the worker
waits for the options that are read with these.
"""

from __future__ import annotations

from dataclasses import field

from helios.dataclass import dataclass
from helios.server.options.access import AccessOptions as AccessOptions
from helios.server.options.limits import LimitOptions as LimitOptions
from helios.server.options.liveness import LivenessOptions as LivenessOptions
from helios.server.options.proxy import ProxyOptions as ProxyOptions
from helios.server.options.tls import TlsOptions as TlsOptions


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Everything about HTTP alone. `strict_fields` refuses body fields that nobody knows,
    `log_access` has a line logged for each request, `vllm_metrics` adds the names that vLLM's
    metrics have; without `tls` it is plain HTTP."""

    access: AccessOptions = field(default_factory=AccessOptions)
    limits: LimitOptions = field(default_factory=LimitOptions)
    liveness: LivenessOptions = field(default_factory=LivenessOptions)
    proxy: ProxyOptions = field(default_factory=ProxyOptions)
    tls: TlsOptions | None = None
    strict_fields: bool = False
    vllm_metrics: bool = False
    log_access: bool = True
