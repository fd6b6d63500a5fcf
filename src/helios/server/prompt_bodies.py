"""Bodies and answers of the routes that only show prompts: `/tokenize`, `/detokenize`,
`/v1/render`. Their descriptions become `/openapi.json`; `prompt_routes` uses them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from helios.server.message_bodies import ChatMessage
from helios.server.tool_bodies import ToolDefinition

_MODEL = "The model's served id or one of its aliases. Default: the model that there is."


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /tokenize`: a `prompt`, or `messages`."""

    model: Annotated[str | None, Meta(description=_MODEL)] = None
    prompt: Annotated[
        str | None, Meta(description="A text, as `/v1/completions` would get it.")
    ] = None
    messages: Annotated[
        list[ChatMessage] | None,
        Meta(description="A conversation, as `/v1/chat/completions` would get it."),
    ] = None
    add_special_tokens: Annotated[
        bool | None,
        Meta(
            description="With `prompt`: begin with the model's beginning-of-sequence token, where"
            " it has one, as `/v1/completions` does. Default: true. With `messages` only false:"
            " the model's template decides."
        ),
    ] = None
    add_generation_prompt: Annotated[
        bool | None,
        Meta(
            description="With `messages`: end with what opens the assistant's answer, as"
            " `/v1/chat/completions` does. Default: true."
        ),
    ] = None
    chat_template_kwargs: Annotated[
        dict[str, Any] | None,
        Meta(description="With `messages`: variables for the model's chat template."),
    ] = None
    continue_final_message: Annotated[
        bool | None,
        Meta(description="With `messages`: end inside the last message's text. Default: false."),
    ] = None
    tools: Annotated[
        list[ToolDefinition] | None,
        Meta(description="With `messages`: the tools that the template shows."),
    ] = None
    documents: Annotated[
        list[dict[str, Any]] | None,
        Meta(description="With `messages`: documents, for templates that use them."),
    ] = None
    return_token_strs: Annotated[
        bool | None, Meta(description="Return each token as the vocabulary spells it, too.")
    ] = None


class Tokenized(msgspec.Struct, frozen=True):
    """The answer of `POST /tokenize`."""

    count: Annotated[int, Meta(description="How many tokens there are.")]
    max_model_len: Annotated[
        int, Meta(description="Most tokens of prompt and output together; the model's context.")
    ]
    tokens: Annotated[list[int], Meta(description="Their ids.")]
    token_strs: Annotated[
        list[str] | None,
        Meta(description="With `return_token_strs`: each as the vocabulary spells it."),
    ] = None


class DetokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /detokenize`."""

    model: Annotated[str | None, Meta(description=_MODEL)] = None
    tokens: Annotated[
        list[int], Meta(description="Ids, at most as many as the model's context holds.")
    ]


class Detokenized(msgspec.Struct, frozen=True):
    """The answer of `POST /detokenize`."""

    prompt: Annotated[
        str,
        Meta(
            description="The text, special tokens spelled; bytes that make no character are"
            " replacement characters."
        ),
    ]


class RenderedSampling(msgspec.Struct, frozen=True):
    """How tokens would be chosen: the request's values over the model's recommendations over the
    API's defaults."""

    temperature: Annotated[float, Meta(description="0 takes the likeliest token each time.")]
    top_k: Annotated[int, Meta(description="0 for all tokens.")]
    top_p: Annotated[float, Meta(description="1 for all tokens.")]
    min_p: Annotated[float, Meta(description="0 for all tokens.")]
    seed: Annotated[
        int | None,
        Meta(description="Of the first choice; null where one would be drawn for each request."),
    ]
    repetition_penalty: Annotated[float, Meta(description="1 is off.")]
    presence_penalty: Annotated[float, Meta(description="0 is off.")]
    frequency_penalty: Annotated[float, Meta(description="0 is off.")]
    min_tokens: Annotated[int, Meta(description="Tokens before which the answer doesn't end.")]
    logit_bias: Annotated[
        dict[str, float], Meta(description="What is added to the logits, by token id.")
    ]
    allowed_token_ids: Annotated[
        list[int] | None, Meta(description="The only tokens that may come; null for all.")
    ]
    bad_words: Annotated[
        list[list[int]], Meta(description="Sequences of tokens that may not come.")
    ]
    top_logprobs: Annotated[
        int, Meta(description="How many of the likeliest tokens the answer would show.")
    ]


class Rendered(msgspec.Struct, frozen=True):
    """The answer of `POST /v1/render`: what the model would get, and for how long it would go
    on."""

    model: Annotated[str, Meta(description="The served id of the model that would answer.")]
    prompt: Annotated[
        str,
        Meta(
            description="The prompt's text. `prompt_token_ids` alone say which of the control"
            " tokens spelled in it are some: a message's own spelling stays plain text."
        ),
    ]
    prompt_token_ids: Annotated[list[int], Meta(description="What the model would get.")]
    prompt_tokens: Annotated[int, Meta(description="How many there are.")]
    max_tokens: Annotated[int, Meta(description="Most tokens that would be generated.")]
    n: Annotated[int, Meta(description="How many answers there would be.")]
    sampling: Annotated[RenderedSampling, Meta(description="How tokens would be chosen.")]
    eos_token_ids: Annotated[
        list[int], Meta(description="Tokens that end an answer; none with `ignore_eos`.")
    ]
    stop: Annotated[list[str], Meta(description="Strings that end an answer.")]
    stop_token_sequences: Annotated[
        list[list[int]],
        Meta(description="Sequences of tokens that end an answer, `stop_token_ids` among them."),
    ]
    priority: Annotated[int, Meta(description="Lower is served first.")]
    constrained: Annotated[
        bool,
        Meta(
            description="Whether a grammar would keep the answer to its form, to calls of its"
            " tools, or its reasoning to a budget."
        ),
    ]
    object: Annotated[Literal["prompt"], Meta(description="Always `prompt`.")] = "prompt"
