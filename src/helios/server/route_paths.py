"""A request's path as routes know it: without the root path."""

from __future__ import annotations

from starlette.types import Scope


def route_path(scope: Scope) -> str:
    """The path without the root path, which `Envelope` has seen to be its beginning."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))
