"""The options that a server was started with, as `/server_info` shows them.

Only what is listed here is shown: no key, nor the path of one, and no other secret. Options that
were left out are shown with their default; what the core and the machine made of the others is
among the capacities.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from helios.server.server import ServerOptions

OF_WORKER: Final = (
    "core",
    "accept",
    "allow_unknown_publisher",
    "cache_dir",
    "allow_private_mirrors",
    "mirror_timeout_s",
    "target",
    "device",
    "threads",
    "instruction_set",
    "request_slots",
    "cache_nbytes",
    "cache_share",
    "speculative_width",
    "snapshots",
    "prompt_cache",
    "prompt_cache_nbytes",
    "offload_nbytes",
    "history_drafting",
    "verify_weights",
    "oracle",
    "scheduler",
    "logs",
)
# Groups of options about HTTP that hold no secret, and single ones.
OF_HTTP: Final = ("limits", "liveness", "proxy", "strict_fields", "vllm_metrics", "log_access")


def options_in_force(options: ServerOptions) -> dict[str, Any]:
    """Them, as JSON values by their names in the options' types; `api_keys` and `tls` say whether
    there are any."""
    access = options.http.access
    return {
        "host": options.host,
        "port": options.port,
        "frontend_workers": options.frontend_workers,
        "http_workers": options.http_workers,
        "worker": {name: _shown(getattr(options.worker, name)) for name in OF_WORKER},
        "http": {
            **{name: _shown(getattr(options.http, name)) for name in OF_HTTP},
            "api_keys": bool(access.key_digests),
            "open_metrics": access.open_metrics,
            "origins": list(access.origins),
            "tls": options.http.tls is not None,
        },
    }


def _shown(value: Any) -> Any:
    return msgspec.to_builtins(value)
