"""Request bodies as types. Their descriptions become `/openapi.json`.

What the types can't say, such as which values are not supported, `validation` checks. Fields that
both APIs have are in `generation_bodies`.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from helios.kernels.catalogue import TOP_CAPACITY
from helios.server.generation_bodies import (
    ACCEPTED,
    ANSWERS_LIMIT,
    PROMPTS_LIMIT,
    UNSUPPORTED,
    GenerationRequest,
    value_range,
)
from helios.server.message_bodies import ChatMessage as ChatMessage
from helios.server.message_bodies import ContentPart as ContentPart
from helios.server.reasoning_bodies import Thinking
from helios.server.tool_bodies import TOOLS_LIMIT, ToolDefinition


class ChatRequest(GenerationRequest, frozen=True, kw_only=True):
    """The body of `POST /v1/chat/completions`."""

    messages: Annotated[
        list[ChatMessage],
        Meta(
            description="The conversation so far, oldest message first.",
            extra_json_schema={"minItems": 1},
        ),
    ]
    logprobs: Annotated[
        bool | None,
        Meta(description="Return the log-probability (natural, of the raw logits) of each token."),
    ] = None
    top_logprobs: Annotated[
        int | None,
        Meta(
            description="How many of the likeliest tokens to return wherever one was generated."
            " Only with `logprobs`. Default: 0.",
            extra_json_schema=value_range(0, TOP_CAPACITY),
        ),
    ] = None
    return_token_ids: Annotated[
        bool | None,
        Meta(description="Return the ids of prompt and output, hidden ones included."),
    ] = None
    return_token_timestamps: Annotated[
        bool | None,
        Meta(description="Return when each token was completed. Only with `return_token_ids`."),
    ] = None
    chat_template_kwargs: Annotated[
        dict[str, Any] | None,
        Meta(description="Variables for the model's chat template, such as `enable_thinking`."),
    ] = None
    tools: Annotated[
        list[ToolDefinition] | None,
        Meta(
            description="The tools that the answer may call.",
            extra_json_schema={"maxItems": TOOLS_LIMIT},
        ),
    ] = None
    tool_choice: Annotated[
        Any,
        Meta(
            description="`auto`: the model decides, which is the default. `none`: no calls."
            " `required`: at least one call. Or a function that is called, as"
            ' `{"type": "function", "function": {"name": …}}`. Or tools that alone may be called,'
            ' as `{"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": […]}}`, with'
            " the mode `auto` or `required`."
        ),
    ] = None
    parallel_tool_calls: Annotated[
        bool | None,
        Meta(description="False: one call at most, where calls are constrained. Default: true."),
    ] = None
    documents: Annotated[
        list[dict[str, Any]] | None, Meta(description="Documents, for templates that use them.")
    ] = None
    add_generation_prompt: Annotated[
        bool | None, Meta(description="True, unless `continue_final_message` is.")
    ] = None
    continue_final_message: Annotated[
        bool | None,
        Meta(description="The answer goes on with the last message's text. Default: false."),
    ] = None
    functions: Annotated[list[Any] | None, Meta(description=f"Empty. {UNSUPPORTED}")] = None
    function_call: Annotated[Any, Meta(description=f"`none` or `auto`. {UNSUPPORTED}")] = None
    modalities: Annotated[list[str] | None, Meta(description=f"`text` alone. {UNSUPPORTED}")] = None
    audio: Annotated[Any, Meta(description=UNSUPPORTED)] = None
    reasoning_effort: Annotated[
        str | None,
        Meta(
            description="How much the model thinks, as its chat template's `reasoning_effort`;"
            " `none` is also its `enable_thinking` and `thinking`, false."
        ),
    ] = None
    thinking: Annotated[
        Thinking | None, Meta(description="Whether the model thinks, and how long at most.")
    ] = None
    thinking_token_budget: Annotated[
        int | None,
        Meta(
            description="Most tokens of reasoning, after which it is ended; -1 for no limit.",
            extra_json_schema={"minimum": -1},
        ),
    ] = None
    include_reasoning: Annotated[
        bool | None, Meta(description="Whether the answer shows reasoning. Default: true.")
    ] = None
    verbosity: Annotated[Any, Meta(description=UNSUPPORTED)] = None
    web_search_options: Annotated[Any, Meta(description=UNSUPPORTED)] = None
    prediction: Annotated[Any, Meta(description=ACCEPTED)] = None
    echo: Annotated[bool | None, Meta(description=f"False. {UNSUPPORTED}")] = None


class CompletionRequest(GenerationRequest, frozen=True, kw_only=True):
    """The body of `POST /v1/completions`."""

    prompt: Annotated[
        str | list[int | str | list[int]],
        Meta(
            description="Text or token ids to continue, or a list of such prompts, at most"
            f" {PROMPTS_LIMIT}. Each gets `n` answers: those to prompt i have the numbers from"
            f" i · `n` on; all together at most {ANSWERS_LIMIT}."
        ),
    ]
    logprobs: Annotated[
        int | None,
        Meta(
            description="Return each token's log-probability (natural, of the raw logits) and those"
            " of so many of the likeliest tokens in its place.",
            extra_json_schema=value_range(0, TOP_CAPACITY),
        ),
    ] = None
    echo: Annotated[
        bool | None,
        Meta(
            description="Begin each answer with its prompt; with `logprobs` its tokens have theirs,"
            " too. `max_tokens` may then be 0."
        ),
    ] = None
    return_token_ids: Annotated[bool | None, Meta(description=f"False. {UNSUPPORTED}")] = None
    return_token_timestamps: Annotated[bool | None, Meta(description=f"False. {UNSUPPORTED}")] = (
        None
    )
    top_logprobs: Annotated[int | None, Meta(description="0; chat's name of `logprobs`.")] = None
    suffix: Annotated[str | None, Meta(description=f"Empty. {UNSUPPORTED}")] = None
    best_of: Annotated[int | None, Meta(description=f"1. {UNSUPPORTED}")] = None
