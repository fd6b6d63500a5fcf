"""JSON responses and errors as responses."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from helios.server.failures import ApiError


def json_response(
    body: object, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """A msgspec-encoded JSON response."""
    return Response(
        msgspec.json.encode(body), status, media_type="application/json", headers=headers
    )


def error_response(error: ApiError) -> Response:
    """The response that a failure amounts to as long as no other has begun."""
    return json_response(error.body, error.status, error.headers)
