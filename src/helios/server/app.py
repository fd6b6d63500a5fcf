"""The ASGI application: routes, errors as bodies, request ids.

Built before anything is loaded; what it can answer follows from the lifecycle it is given.
"""

from __future__ import annotations

import itertools
import re
import uuid
from typing import Any, Final

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from helios.server.abort import abort_route
from helios.server.calls import chat_call, completion_call
from helios.server.failures import ApiError, internal_error
from helios.server.generation import GenerationEndpoint
from helios.server.lifecycle import Lifecycle
from helios.server.metrics import HttpMetrics
from helios.server.options import HttpOptions
from helios.server.prompt_routes import prompt_routes
from helios.server.reset import reset_route
from helios.server.routes import json_response, read_routes
from helios.server.running import RunningRequests

_REQUEST_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")


def build_app(lifecycle: Lifecycle, options: HttpOptions | None = None) -> ASGIApp:
    """The application over a lifecycle that others move on."""
    options = options or HttpOptions()
    metrics = HttpMetrics()
    running = RunningRequests()
    request_ids = itertools.count(1)
    generation = [
        Route(
            path,
            GenerationEndpoint(parse, lifecycle, metrics, request_ids, options, running),
            methods=["POST"],
        )
        for path, parse in (
            ("/v1/chat/completions", chat_call),
            ("/v1/completions", completion_call),
        )
    ]
    handlers: dict[Any, Any] = {
        ApiError: _api_error,
        HTTPException: _http_error,
        Exception: _unexpected_error,
    }
    app = Starlette(
        routes=[
            *generation,
            *prompt_routes(lifecycle, metrics, options),
            abort_route(running.abort, options),
            reset_route(lifecycle),
            *read_routes(lifecycle, metrics, options),
        ],
        exception_handlers=handlers,
    )
    # A path with a slash too many is no path of this API; a redirect would lose the body.
    app.router.redirect_slashes = False
    return _Envelope(app, metrics)


async def _api_error(request: Request, error: ApiError) -> Response:
    headers = {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(error.retry_after_s)
    return json_response(error.body, error.status, headers)


async def _http_error(request: Request, error: HTTPException) -> Response:
    """What the router itself refuses: unknown paths and methods."""
    codes = {404: "not_found", 405: "method_not_allowed"}
    text = f"{request.method} {request.url.path}: {error.detail}. See /openapi.json"
    failure = ApiError(error.status_code, text, code=codes.get(error.status_code, "http_error"))
    return json_response(failure.body, error.status_code, dict(error.headers or {}))


async def _unexpected_error(request: Request, error: Exception) -> Response:
    return json_response(internal_error().body, 500)


class _Envelope:
    """Gives every request an id, puts it on the response and counts responses by status."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes HTTP requests on; lifespan messages too, without an id."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = request_id
                route = scope.get("route")
                path = getattr(route, "path", "other")
                self._metrics.responses[(path, message["status"])] += 1
            await send(message)

        await self._app(scope, receive, send_with_id)
