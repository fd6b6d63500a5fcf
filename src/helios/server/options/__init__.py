"""What an HTTP process is told: frozen data, grouped by subject, one module a group.

`server.ServerOptions` carries all of it, the command line (`helios.cli_serve`) fills it in, and
`app.build_app` and `http_server` use it. Nothing here imports what HTTP needs, since options are
read before the worker starts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from helios.server.options.limits import LimitOptions as LimitOptions


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Everything about HTTP alone. `strict_fields` refuses body fields that nobody knows;
    `vllm_metrics` adds the names that vLLM's metrics have."""

    limits: LimitOptions = field(default_factory=LimitOptions)
    strict_fields: bool = False
    vllm_metrics: bool = False
