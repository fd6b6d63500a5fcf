"""A generation request's life in the HTTP process: permit, preparation, submission, delivery.

One endpoint class for both APIs; what differs between them is a `Call`, made by `calls`. A client
that goes away at any point ends the work here and cancels the request in the worker.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from helios.errors import RequestError
from helios.frontend.prepare import PreparedRequest
from helios.frontend.prepare import choices as choices_of
from helios.server import sse
from helios.server.access_log import AccessRecord, record_of
from helios.server.answering import Answer, WholeAnswer, answer_of
from helios.server.answers import PromptTokensDetails, Usage
from helios.server.body_writer import body_writer
from helios.server.calls import Call
from helios.server.choices import Choice, begin_choices
from helios.server.deadlines import Deadline
from helios.server.delivery import delivered, is_delivered
from helios.server.failures import ApiError, from_request_error, internal_error, refuse_ignored
from helios.server.ignored_fields import ignored_header
from helios.server.intake import read_body
from helios.server.lifecycle import Lifecycle, ServedModel
from helios.server.metrics import HttpMetrics
from helios.server.model_names import check_model
from helios.server.observation import Stopwatch, Totals
from helios.server.options import HttpOptions
from helios.server.presentation import AnswerIdentity
from helios.server.running import RunningRequest, RunningRequests
from helios.server.streaming import StreamedAnswer

_log = logging.getLogger(__name__)


class GenerationEndpoint:
    """An ASGI application for one generation route."""

    def __init__(
        self,
        parse: Callable[[bytes], Call],
        lifecycle: Lifecycle,
        metrics: HttpMetrics,
        request_ids: Iterator[int],
        options: HttpOptions,
        running: RunningRequests,
    ) -> None:
        self._parse = parse
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._request_ids = request_ids
        self._options = options
        self._running = running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request. Raises ApiError as long as no header is out."""
        try:
            data = await read_body(Request(scope, receive), self._options.limits)
        except ClientDisconnect:
            self._metrics.disconnects += 1
            return
        began = self._metrics.clock()
        model = self._lifecycle.serving()
        call = self._parse(data)
        record_of(scope).ignored = call.ignored
        if self._options.strict_fields:
            refuse_ignored(call.ignored)
        check_model(call.model, model)
        watch = Stopwatch(timed=call.observation.timed, origin_ns=model.ready.origin_ns)
        watch.came_in()
        request = RunningRequest(model.client)
        with (
            model.admission.permit() as permit,
            self._running.named(scope["state"]["request_id"], request),
        ):

            async def answer() -> None:
                await self._answer_logging_bugs(call, model, request, watch, began, scope, send)
                # In the same turn of the loop as its last byte: a client that has read the answer
                # and asks again finds a place.
                if is_delivered(scope):
                    permit.give_back()

            if await _until_disconnect(receive, answer()):
                await delivered(scope)  # a permit is held as long as any output is
            else:
                self._metrics.disconnects += 1

    async def _answer_logging_bugs(self, *answer: Any) -> None:
        """As `_answer`; what isn't foreseen is logged, and an ApiError to the client."""
        try:
            await self._answer(*answer)
        except ApiError:
            raise
        except Exception as error:
            _log.exception("a request can't be answered")
            raise internal_error() from error

    async def _answer(
        self,
        call: Call,
        model: ServedModel,
        request: RunningRequest,
        watch: Stopwatch,
        began: float,
        scope: Scope,
        send: Send,
    ) -> None:
        deadline = Deadline(began, self._options.limits.request_timeout_s)
        async with deadline.bounds():
            prompts = await self._prepare(call, model)
        choices = begin_choices(prompts, model, self._request_ids, call.observation, request)
        identity = AnswerIdentity.make(call.id_prefix, model.served_id, model.system_fingerprint)
        presenter = call.present(identity, [one for choices in prompts for one in choices])
        headers = ignored_header(call.ignored)
        watched = functools.partial(self._metrics.watch, began=began)
        totals = functools.partial(_totals, choices, watch)
        watch.queued()
        record = record_of(scope)
        record.answer_id = identity.id
        if not call.stream:
            whole = WholeAnswer(choices, presenter, totals, watched)
            with (
                self._running.named(identity.id, request),
                deadline.calls(whole.end),
                _noting(record, choices, whole),
            ):
                body = await answer_of(request, choices, whole)
            response = Response(body, media_type="application/json", headers=headers)
            await response(scope, _no_receive, send)
            return
        await sse.begin_stream(send, headers)
        writer = body_writer(scope, send)
        streamed = StreamedAnswer(
            choices,
            presenter,
            totals,
            watched,
            writer,
            include_usage=call.include_usage,
            merges=not call.observation.token_ids,
        )
        with (
            self._running.named(identity.id, request),
            deadline.calls(streamed.end),
            _noting(record, choices, streamed),
        ):
            last = await answer_of(request, choices, streamed)
        await writer.end(last)

    async def _prepare(self, call: Call, model: ServedModel) -> list[list[PreparedRequest]]:
        """Of each prompt, a request for each choice."""
        work = functools.partial(call.prepare, model.frontend.preparer)
        try:
            prepared = await self._metrics.preparations.run(model.preparation, work)
            return [choices_of(prompt, call.choices) for prompt in prepared]
        except RequestError as error:
            raise from_request_error(error, call.field_names) from None


def _totals(choices: Sequence[Choice], watch: Stopwatch, reused: int) -> Totals:
    """`reused` counts what the first choice of each prompt did: the others reuse the prompt that
    it computes, which is counted once."""
    prompt, output = _token_counts(choices)
    usage = Usage(prompt, output, prompt + output, PromptTokensDetails(reused))
    return Totals(usage, reused, watch.performance(reused))


def _token_counts(choices: Sequence[Choice]) -> tuple[int, int]:
    """Tokens of the prompts, each of which is counted once, and those generated so far."""
    prompt = sum(choice.pipeline.prompt_tokens for choice in choices if choice.leads)
    return prompt, sum(choice.pipeline.output_tokens for choice in choices)


@contextmanager
def _noting(record: AccessRecord, choices: Sequence[Choice], answer: Answer) -> Iterator[None]:
    """Has the access log say how the answer has ended, however it does."""
    try:
        yield
    finally:
        record.finish = [reason for _, reason in sorted(answer.finishes.items())]
        record.prompt_tokens, record.output_tokens = _token_counts(choices)
        if answer.error is not None:
            record.error = answer.error.body.error.code


async def _no_receive() -> dict[str, str]:
    raise AssertionError("responses don't read")


async def _until_disconnect(receive: Receive, work: Coroutine[None, None, None]) -> bool:
    """Runs `work` unless the client goes away first, which cancels it. Returns whether it ran
    to its end; raises what it raises."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
            return True
        return False
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    """Returns when the client has gone; the body has been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass
