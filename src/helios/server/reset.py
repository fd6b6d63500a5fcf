"""`POST /reset_prefix_cache`: forget what was computed for earlier prompts."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from helios.errors import HeliosError
from helios.server.failures import ApiError
from helios.server.lifecycle import Lifecycle


def reset_route(lifecycle: Lifecycle) -> Route:
    """The route over the process's state. Its answer, an empty object, comes once it is done."""

    async def reset_prefix_cache(request: Request) -> Response:
        client = lifecycle.serving().client
        try:
            await client.reset_prefix_cache()
        except HeliosError as error:
            raise ApiError(500, str(error), code="model_failed") from error
        return Response(b"{}", media_type="application/json")

    return Route("/reset_prefix_cache", reset_prefix_cache, methods=["POST"])
