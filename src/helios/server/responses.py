"""JSON responses and errors as responses."""

from __future__ import annotations

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from helios.server.access_log import record_of
from helios.server.failures import ApiError


def json_response(
    body: object, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """A msgspec-encoded JSON response."""
    return Response(
        msgspec.json.encode(body), status, media_type="application/json", headers=headers
    )


def error_response(scope: Scope, error: ApiError) -> Response:
    """The response that a failure amounts to as long as no other has begun. The access log will
    name its code."""
    record_of(scope).error = error.body.error.code
    return json_response(error.body, error.status, error.headers)


async def send_error(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answers a request with it."""
    await error_response(scope, error)(scope, receive, send)
