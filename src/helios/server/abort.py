"""`POST /abort`: end a running request by its id."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from helios.server.failures import ApiError, refuse_ignored
from helios.server.ignored_fields import ignored_header
from helios.server.intake import read_body
from helios.server.json_bodies import converted, json_object, unknown_within
from helios.server.options import HttpOptions


class AbortRequest(msgspec.Struct, frozen=True):
    """The body of `POST /abort`."""

    request_id: Annotated[
        str,
        Meta(
            description="The `id` that the request's answer has, or its `x-request-id`, which may"
            " be that of several requests."
        ),
    ]


class Aborted(msgspec.Struct, frozen=True):
    """The answer of `POST /abort`: the request's own answer ends with what it has."""

    request_id: Annotated[str, Meta(description="What was given.")]


def abort_route(abort: Callable[[str], Awaitable[bool]], options: HttpOptions) -> Route:
    """The route over what ends the requests of a name and says whether there is one."""

    async def abort_request(request: Request) -> Response:
        raw = json_object(await read_body(request, options.limits))
        request_id = converted(raw, AbortRequest).request_id
        ignored = sorted(unknown_within(raw, AbortRequest))
        if options.strict_fields:
            refuse_ignored(ignored)
        if not await abort(request_id):
            raise ApiError(
                404,
                f"no request of the id {request_id[:128]!r} runs here. It may have ended",
                code="request_not_found",
                param="request_id",
            )
        return Response(
            msgspec.json.encode(Aborted(request_id)),
            media_type="application/json",
            headers=ignored_header(ignored),
        )

    return Route("/abort", abort_request, methods=["POST"])
