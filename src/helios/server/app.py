"""The ASGI application: routes, errors as bodies, and what lies around them.

From the outside in: every request's envelope, origins of browsers, the limit of connections, API
keys, routes. So whatever refuses a request, the response has an id, a line in the log and what a
browser needs to show it.

Built before anything is loaded; what it can answer follows from the lifecycle it is given.
"""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from helios.server.abort import abort_route
from helios.server.access import with_keys, with_origins
from helios.server.calls import chat_call, completion_call
from helios.server.connections import ConnectionLimit
from helios.server.envelope import Envelope
from helios.server.failures import ApiError, internal_error
from helios.server.generation import GenerationEndpoint
from helios.server.lifecycle import Lifecycle
from helios.server.metrics import HttpMetrics
from helios.server.options import HttpOptions
from helios.server.peer_questions import PeerQuestions
from helios.server.prompt_routes import prompt_routes
from helios.server.reset import reset_route
from helios.server.responses import error_response
from helios.server.routes import read_routes
from helios.server.running import RunningRequests
from helios.worker.process_numbers import FIRST_PROCESS, request_ids


def build_app(
    lifecycle: Lifecycle, options: HttpOptions | None = None, *, process: int = FIRST_PROCESS
) -> ASGIApp:
    """The application over a lifecycle that others move on, in the HTTP process of this number."""
    options = options or HttpOptions()
    metrics = HttpMetrics()
    handlers: dict[Any, Any] = {
        ApiError: _api_error,
        HTTPException: _http_error,
        Exception: _unexpected_error,
    }
    routes = api_routes(lifecycle, metrics, options, process)
    app = Starlette(routes=routes, exception_handlers=handlers)
    # A path with a slash too many is no path of this API; a redirect would lose the body.
    app.router.redirect_slashes = False
    inner = with_keys(app, options.access)
    inner = with_origins(ConnectionLimit(inner, options.limits), options.access)
    root_path = options.proxy.root_path
    return Envelope(inner, metrics, root_path=root_path, log_access=options.log_access)


def api_routes(
    lifecycle: Lifecycle,
    metrics: HttpMetrics,
    options: HttpOptions,
    process: int = FIRST_PROCESS,
) -> list[Route]:
    """All routes of the API."""
    running = RunningRequests()
    peers = PeerQuestions(lifecycle, metrics, running)
    lifecycle.answer_peers = peers.answer
    ids = request_ids(process)
    generation = [
        Route(
            path,
            GenerationEndpoint(parse, lifecycle, metrics, ids, options, running),
            methods=["POST"],
        )
        for path, parse in (
            ("/v1/chat/completions", chat_call),
            ("/v1/completions", completion_call),
        )
    ]
    return [
        *generation,
        *prompt_routes(lifecycle, metrics, options),
        abort_route(peers.abort, options),
        reset_route(lifecycle),
        *read_routes(lifecycle, peers, options),
    ]


async def _api_error(request: Request, error: ApiError) -> Response:
    return error_response(request.scope, error)


async def _http_error(request: Request, error: HTTPException) -> Response:
    """What the router itself refuses: unknown paths and methods."""
    codes = {404: "not_found", 405: "method_not_allowed"}
    text = f"{request.method} {request.url.path}: {error.detail}. See /openapi.json"
    code = codes.get(error.status_code, "http_error")
    return await _api_error(
        request, ApiError(error.status_code, text, code=code, headers=error.headers)
    )


async def _unexpected_error(request: Request, error: Exception) -> Response:
    return error_response(request.scope, internal_error())
