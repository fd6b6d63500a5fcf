"""What the worker's events mean for an answer: a step of one of its choices, or an error.

Pure; `answering` calls it for each event, or for several of one choice made into one.
"""

from __future__ import annotations

from collections.abc import Sequence

from helios.frontend.grammar.faults import grammar_error
from helios.frontend.output import OutputDelta
from helios.server.answers import FinishReason
from helios.server.choices import Choice
from helios.server.failures import ApiError, from_request_error
from helios.server.observation import Step
from helios.worker.messages import FailedEvent, Finish, RejectedEvent, TokensEvent
from helios.worker.recipient import RequestEvent


def merged(events: Sequence[RequestEvent]) -> RequestEvent:
    """One event for several of a request in order: what they say together. One that isn't tokens
    ends a request, and must be alone."""
    first, last = events[0], events[-1]
    if first is last:
        return first
    tokens: list[int] = []
    logprobs: list[float] = []
    alternatives: list[tuple[tuple[int, ...], tuple[float, ...]]] = []
    for event in events:
        assert isinstance(event, TokensEvent)
        tokens += event.tokens
        logprobs += event.logprobs
        alternatives += event.alternatives
    assert isinstance(first, TokensEvent)
    assert isinstance(last, TokensEvent)
    return TokensEvent(
        first.request_id,
        tokens,
        logprobs,
        last.finish,
        first.prompt_logprobs,
        last.reused_prompt_tokens,
        alternatives,
        last.completed_ns,
        first.prompt_ranks,
        first.prompt_alternatives,
    )


def step_of(choice: Choice, event: RequestEvent, *, text_only: bool = False) -> Step:
    """What an event adds to its choice; with `text_only` nothing is kept of each token. Raises
    ApiError for the end of a request that isn't an answer's."""
    if isinstance(event, RejectedEvent):
        raise ApiError(503, event.message, code="not_admitted", retry_after_s=1)
    if isinstance(event, FailedEvent) and event.fault:
        raise from_request_error(
            grammar_error(event.fault, event.message, choice.grammar_where), {}
        )
    if isinstance(event, FailedEvent):
        raise ApiError(500, event.message, code="execution_failed")
    reason = None
    if event.finish:
        reason = _reason(Finish(event.finish), aborted=choice.request.aborted)
    last = reason is not None
    pipeline = choice.pipeline
    if not text_only:
        delta = pipeline.push(event.tokens, event.logprobs, event.alternatives, last=last)
    elif pipeline.parses:
        delta = pipeline.push_parts(event.tokens, last=last)
    else:
        delta = OutputDelta(pipeline.push_text(event.tokens, last=last), ())
    if event.finish == Finish.EOS and pipeline.calls_tools:
        reason = "tool_calls"
    return Step(delta, reason, event.completed_ns, event.reused_prompt_tokens, choice.index)


def _reason(finish: Finish, *, aborted: bool) -> FinishReason:
    match finish:
        case Finish.EOS | Finish.STOP:
            return "stop"
        case Finish.LIMIT:
            return "length"
        case Finish.CANCELLED if aborted:
            return "abort"
        case Finish.CANCELLED:
            raise ApiError(503, "the request was cancelled: the model is ending", code="cancelled")
        case Finish.FAILED | Finish.GRAMMAR:  # the latter comes as a FailedEvent
            raise ApiError(500, "executing the request failed", code="execution_failed")
