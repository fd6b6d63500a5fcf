"""The routes that only show prompts: `/tokenize`, `/detokenize`, `/v1/render`.

Nothing is submitted. They take a permit and a preparation slot as generation does, so that their
work is bounded by the same numbers and never done on the event loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from helios.errors import RequestError
from helios.server.access_log import record_of
from helios.server.deadlines import Deadline
from helios.server.failures import from_request_error, refuse_ignored
from helios.server.ignored_fields import ignored_header
from helios.server.intake import read_body
from helios.server.lifecycle import Lifecycle, ServedModel
from helios.server.metrics import HttpMetrics
from helios.server.model_names import check_model
from helios.server.options import HttpOptions
from helios.server.prompt_calls import PromptCall, detokenize_call, render_call, tokenize_call


def prompt_routes(lifecycle: Lifecycle, metrics: HttpMetrics, options: HttpOptions) -> list[Route]:
    """The routes over the process's state."""
    return [
        Route(path, PromptEndpoint(parse, lifecycle, metrics, options), methods=["POST"])
        for path, parse in (
            ("/tokenize", tokenize_call),
            ("/detokenize", detokenize_call),
            ("/v1/render", render_call),
        )
    ]


class PromptEndpoint:
    """An ASGI application for one of the routes."""

    def __init__(
        self,
        parse: Callable[[bytes], PromptCall],
        lifecycle: Lifecycle,
        metrics: HttpMetrics,
        options: HttpOptions,
    ) -> None:
        self._parse = parse
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request. Raises ApiError."""
        try:
            data = await read_body(Request(scope, receive), self._options.limits)
        except ClientDisconnect:
            self._metrics.disconnects += 1
            return
        deadline = Deadline(self._metrics.clock(), self._options.limits.request_timeout_s)
        model = self._lifecycle.serving()
        call = self._parse(data)
        record_of(scope).ignored = call.ignored
        if self._options.strict_fields:
            refuse_ignored(call.ignored)
        if call.model is not None:
            check_model(call.model, model)
        with model.admission.permit():
            work = functools.partial(_encoded, call, model)
            try:
                async with deadline.bounds():
                    body = await self._metrics.preparations.run(model.preparation, work)
            except RequestError as error:
                raise from_request_error(error, call.field_names) from None
        headers = ignored_header(call.ignored)
        await Response(body, media_type="application/json", headers=headers)(scope, receive, send)


def _encoded(call: PromptCall, model: ServedModel) -> bytes:
    return msgspec.json.encode(call.work(model))
