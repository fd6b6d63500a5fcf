"""What the two generation APIs do differently: a validated body as a `Call`.

`generation` handles every call alike; this module knows the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from helios.frontend.prepare import GenerationOptions, PreparedRequest, Preparer
from helios.server.bodies import GenerationRequest
from helios.server.observation import UNOBSERVED, Observation
from helios.server.presentation import (
    AnswerIdentity,
    ChatPresenter,
    CompletionPresenter,
    Presenter,
)
from helios.server.validation import (
    chat_messages,
    decode_chat,
    decode_completion,
    single_prompt,
)


@dataclass(frozen=True, slots=True)
class Call:
    """A generation request, whichever API it came by. `limit_field` is the client's name for
    the output limit; `ignored` are body fields without meaning here. `present` takes the prompt's
    tokens, too."""

    model: str
    stream: bool
    include_usage: bool
    ignored: tuple[str, ...]
    id_prefix: str
    limit_field: str
    prepare: Callable[[Preparer], PreparedRequest]
    present: Callable[[AnswerIdentity, Sequence[int]], Presenter]
    observation: Observation = UNOBSERVED


def chat_call(data: bytes) -> Call:
    """A chat body as a call. Raises ApiError 400."""
    decoded = decode_chat(data)
    request = decoded.request
    options = _options(request)
    include_usage = _include_usage(request)

    def prepare(preparer: Preparer) -> PreparedRequest:
        return preparer.prepare_chat(
            chat_messages(request), options, template_variables=request.chat_template_kwargs
        )

    observation = Observation(bool(request.return_token_ids), bool(request.return_token_timestamps))

    def present(identity: AnswerIdentity, prompt_tokens: Sequence[int]) -> Presenter:
        return ChatPresenter(
            identity,
            logprobs=bool(request.logprobs),
            include_usage=include_usage,
            observation=observation,
            prompt_tokens=prompt_tokens,
        )

    return Call(
        model=request.model,
        stream=bool(request.stream),
        include_usage=include_usage,
        ignored=decoded.ignored,
        id_prefix="chatcmpl",
        limit_field=_limit_field(request),
        prepare=prepare,
        present=present,
        observation=observation,
    )


def completion_call(data: bytes) -> Call:
    """A completions body as a call. Raises ApiError 400."""
    decoded = decode_completion(data)
    request = decoded.request
    prompt = single_prompt(request)
    options = _options(request)
    include_usage = _include_usage(request)

    def prepare(preparer: Preparer) -> PreparedRequest:
        return preparer.prepare_completion(prompt, options)

    def present(identity: AnswerIdentity, prompt_tokens: Sequence[int]) -> Presenter:
        return CompletionPresenter(
            identity, logprobs=request.logprobs is not None, include_usage=include_usage
        )

    return Call(
        model=request.model,
        stream=bool(request.stream),
        include_usage=include_usage,
        ignored=decoded.ignored,
        id_prefix="cmpl",
        limit_field=_limit_field(request),
        prepare=prepare,
        present=present,
    )


def _limit_field(request: GenerationRequest) -> str:
    return "max_tokens" if request.max_completion_tokens is None else "max_completion_tokens"


def _options(request: GenerationRequest) -> GenerationOptions:
    return GenerationOptions(
        max_tokens=getattr(request, _limit_field(request)),
        temperature=request.temperature,
        top_k=request.top_k,
        top_p=request.top_p,
        min_p=request.min_p,
        seed=request.seed,
        priority=request.priority,
        stop=request.stop,
        stop_token_ids=request.stop_token_ids,
        stop_token_sequences=request.stop_token_sequences,
    )


def _include_usage(request: GenerationRequest) -> bool:
    return request.stream_options is not None and bool(request.stream_options.include_usage)
