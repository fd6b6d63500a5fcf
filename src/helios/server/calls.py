"""What the two generation APIs do differently: a validated body as a `Call`.

`generation` handles every call alike; this module knows the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from helios.dataclass import dataclass
from helios.errors import RequestError
from helios.frontend.chat_options import ChatOptions
from helios.frontend.grammar.structural_tags import AnswerForm
from helios.frontend.prepare import GenerationOptions, PreparedRequest, Preparer
from helios.frontend.tools import Calling
from helios.server.bodies import ChatRequest
from helios.server.chat_presentation import ChatPresenter
from helios.server.completion_presentation import CompletionPresenter
from helios.server.failures import from_request_error, invalid, not_supported
from helios.server.generation_bodies import GenerationRequest
from helios.server.observation import UNOBSERVED, Observation
from helios.server.presentation import AnswerIdentity, Presenter
from helios.server.reasoning_bodies import reasoning_of
from helios.server.structure_bodies import structure_of
from helios.server.tool_bodies import tools_of
from helios.server.validation import (
    chat_messages,
    completion_prompts,
    decode_chat,
    decode_completion,
    lists_prompts,
)


@dataclass(frozen=True, slots=True)
class Call:
    """A generation request, whichever API it came by. `field_names` are the client's names of
    options where they differ; `ignored` are body fields without meaning here. `prepare` makes a
    request of each prompt, `present` takes one for each choice. `choices` is how many answers are
    wanted to each prompt."""

    model: str
    stream: bool
    include_usage: bool
    ignored: tuple[str, ...]
    id_prefix: str
    field_names: Mapping[str, str]
    prepare: Callable[[Preparer], list[PreparedRequest]]
    present: Callable[[AnswerIdentity, Sequence[PreparedRequest]], Presenter]
    observation: Observation = UNOBSERVED
    choices: int = 1


def chat_call(data: bytes) -> Call:
    """A chat body as a call. Raises ApiError 400."""
    decoded = decode_chat(data)
    request = decoded.request
    options = _options(request, request.top_logprobs, request.prompt_logprobs)
    include_usage = _include_usage(request)
    chat = _chat_options(request, decoded.raw)

    def prepare(preparer: Preparer) -> list[PreparedRequest]:
        return [preparer.prepare_chat(chat_messages(request.messages), options, chat=chat)]

    observation = Observation(bool(request.return_token_ids), bool(request.return_token_timestamps))

    def present(identity: AnswerIdentity, requests: Sequence[PreparedRequest]) -> Presenter:
        return ChatPresenter(
            identity,
            logprobs=bool(request.logprobs),
            include_usage=include_usage,
            observation=observation,
            prompt_tokens=requests[0].prompt_tokens,
            scores=request.prompt_logprobs,
            shows_reasoning=request.include_reasoning is not False,
        )

    return Call(
        model=request.model,
        stream=bool(request.stream),
        include_usage=include_usage,
        ignored=decoded.ignored,
        id_prefix="chatcmpl",
        field_names={"max_tokens": _limit_field(request)},
        prepare=prepare,
        present=present,
        observation=observation,
        choices=_choices(request),
    )


def completion_call(data: bytes) -> Call:
    """A completions body as a call. Raises ApiError 400."""
    decoded = decode_completion(data)
    request = decoded.request
    prompts, listed = completion_prompts(request), lists_prompts(request)
    echo = bool(request.echo)
    wanted = [request.prompt_logprobs, request.logprobs if echo else None]
    scores = max((count for count in wanted if count is not None), default=None)
    options = _options(request, request.logprobs, scores)
    include_usage = _include_usage(request)
    structure = _structure(decoded.raw)

    def prepare(preparer: Preparer) -> list[PreparedRequest]:
        found = []
        for index, prompt in enumerate(prompts):
            try:
                found.append(
                    preparer.prepare_completion(prompt, options, shown=echo, structure=structure)
                )
            except RequestError as error:
                if not listed:
                    raise
                raise _of_prompt(index, error) from None
        return found

    def present(identity: AnswerIdentity, requests: Sequence[PreparedRequest]) -> Presenter:
        return CompletionPresenter(
            identity,
            requests,
            logprobs=request.logprobs,
            scores=request.prompt_logprobs,
            include_usage=include_usage,
        )

    field_names = {"max_tokens": _limit_field(request), "top_logprobs": "logprobs"}
    if scores != request.prompt_logprobs:
        field_names["prompt_logprobs"] = "logprobs"
    return Call(
        model=request.model,
        stream=bool(request.stream),
        include_usage=include_usage,
        ignored=decoded.ignored,
        id_prefix="cmpl",
        field_names=field_names,
        prepare=prepare,
        present=present,
        choices=_choices(request),
    )


def _of_prompt(index: int, error: RequestError) -> RequestError:
    """An error that says which of several prompts it is about."""
    name, rest = f"prompt[{index}]", error.where.removeprefix("prompt")
    if rest != error.where and rest[:1] in ("", "["):
        return type(error)(error.what, where=name + rest, remedy=error.remedy)
    return type(error)(f"{error.what} ({name})", where=error.where, remedy=error.remedy)


def _chat_options(request: ChatRequest, raw: Mapping[str, Any]) -> ChatOptions:
    """What a chat body asks besides messages and sampling. Raises ApiError 400."""
    tools = tools_of(request.tools or (), request.tool_choice, parallel=request.parallel_tool_calls)
    if request.add_generation_prompt is False and not request.continue_final_message:
        raise not_supported(
            "add_generation_prompt", "Set continue_final_message with it, or leave it out"
        )
    if request.add_generation_prompt and request.continue_final_message:
        raise invalid(
            "add_generation_prompt",
            "add_generation_prompt: the last message is continued, or a new one begins. Leave out"
            " one of add_generation_prompt and continue_final_message",
        )
    reasoning = reasoning_of(
        request.reasoning_effort, request.thinking, request.thinking_token_budget
    )
    return ChatOptions(
        variables={**reasoning.variables, **(request.chat_template_kwargs or {})},
        definitions=() if tools.calling is Calling.NONE else tuple(raw.get("tools") or ()),
        tools=tools,
        structure=_structure(raw),
        documents=tuple(request.documents or ()),
        continue_last=bool(request.continue_final_message),
        thinking=reasoning.budget,
    )


def _structure(raw: Mapping[str, Any]) -> AnswerForm | None:
    try:
        return structure_of(raw)
    except RequestError as error:
        raise from_request_error(error, {}) from None


def _limit_field(request: GenerationRequest) -> str:
    return "max_tokens" if request.max_completion_tokens is None else "max_completion_tokens"


def _choices(request: GenerationRequest) -> int:
    return 1 if request.n is None else request.n


def _options(
    request: GenerationRequest, top_logprobs: int | None, prompt_logprobs: int | None
) -> GenerationOptions:
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
        repetition_penalty=request.repetition_penalty,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        min_tokens=request.min_tokens,
        ignore_eos=request.ignore_eos,
        logit_bias=request.logit_bias,
        allowed_token_ids=request.allowed_token_ids,
        bad_words=request.bad_words,
        top_logprobs=top_logprobs,
        prompt_logprobs=prompt_logprobs,
    )


def _include_usage(request: GenerationRequest) -> bool:
    return request.stream_options is not None and bool(request.stream_options.include_usage)
