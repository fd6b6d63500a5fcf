"""A request's path as routes know it, without the root path; and paths that have other rules."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

# What orchestrators ask, and what tells nothing about requests or their owners.
READY: Final = "/ready"
PROBES: Final = frozenset({"/health", READY, "/version"})
METRICS: Final = "/metrics"


def route_path(scope: Scope) -> str:
    """The path without the root path, which `Envelope` has seen to be its beginning."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))
