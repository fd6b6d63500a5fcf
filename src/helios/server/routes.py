"""The routes that only read: models, health, readiness, version, metrics, description."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from helios.server.capabilities import capabilities
from helios.server.exposition import CONTENT_TYPE
from helios.server.failures import ApiError
from helios.server.lifecycle import Lifecycle, ServedModel
from helios.server.models import Model, ModelList
from helios.server.options import HttpOptions
from helios.server.peer_questions import PeerQuestions
from helios.server.responses import json_response
from helios.server.scrape import scrape
from helios.server.server_info import server_info
from helios.server.state_answers import Health, Version
from helios.version import VERSION

_READ: Final = ["GET"]

Handler = Callable[[Request], Awaitable[Response]]


def read_routes(lifecycle: Lifecycle, peers: PeerQuestions, options: HttpOptions) -> list[Route]:
    """Routes over the process's state."""

    async def health(request: Request) -> Response:
        error = lifecycle.error
        if error is not None:
            return json_response(Health("failed", str(error)), 500)
        if lifecycle.stalled:
            return json_response(Health("stalled", lifecycle.stalled), 503)
        if lifecycle.unsound:
            return json_response(Health("unsound", lifecycle.unsound), 500)
        return json_response(Health("ok"))

    async def ready(request: Request) -> Response:
        readiness = lifecycle.readiness()
        return json_response(readiness, 200 if readiness.ready else 503)

    async def version(request: Request) -> Response:
        model = lifecycle.model
        known = Version(VERSION, model.digest, model.kernel_path) if model else Version(VERSION)
        return json_response(known)

    async def models(request: Request) -> Response:
        return json_response(ModelList(_models(lifecycle.serving())))

    async def one_model(request: Request) -> Response:
        name = request.path_params["model"]
        for model in _models(lifecycle.serving()):
            if model.id == name:
                return json_response(model)
        raise ApiError(404, f"there is no model {name!r}", code="model_not_found", param="model")

    async def read_server_info(request: Request) -> Response:
        return json_response(server_info(lifecycle))

    async def read_metrics(request: Request) -> Response:
        text = await scrape(lifecycle, await peers.snapshot(), vllm_names=options.vllm_metrics)
        return Response(text, media_type=CONTENT_TYPE)

    async def openapi(request: Request) -> Response:
        return Response(_description(options), media_type="application/json")

    return [
        Route("/v1/models", models, methods=_READ),
        Route("/v1/models/{model:path}", one_model, methods=_READ),
        Route("/health", health, methods=_READ),
        Route("/ready", ready, methods=_READ),
        Route("/version", version, methods=_READ),
        Route("/server_info", read_server_info, methods=_READ),
        Route("/metrics", read_metrics, methods=_READ),
        Route("/openapi.json", openapi, methods=_READ),
    ]


def _models(served: ServedModel) -> list[Model]:
    context = served.ready.max_context_tokens
    able = capabilities(served)
    return [
        Model(name, served.created, served.namespace, served.served_id, context, context, able)
        for name in served.names
    ]


@functools.cache
def _description(options: HttpOptions) -> bytes:
    from helios.server.openapi import describe

    return msgspec.json.encode(describe(options))
