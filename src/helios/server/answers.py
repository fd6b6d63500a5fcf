"""Generated answers as types: JSON bodies and stream chunks.

Their descriptions become `/openapi.json`; `presentation` fills them in. What the server says about
itself is in `state_answers`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from helios.server.tool_bodies import ToolCall, ToolCallDelta

FinishReason = Literal["stop", "length", "tool_calls", "abort"]

_ID = "Identifies the answer; the same in every chunk of a stream."
_CREATED = "Unix time in seconds."
_MODEL = "The served id of the model that answered."
_FINGERPRINT = "Names core and kernel path: equal fingerprints and seeds give equal answers."
_INDEX = "The choice's number, from 0; more than one with `n`."
_FINISH = (
    "`stop`: the model ended its answer, or a stop did; so too after a call that `tool_choice`"
    " names. `tool_calls`: it ended after calling tools. `length`: the output limit was reached."
    " `abort`: `/abort` ended it."
)
_PROMPT_IDS = "With `return_token_ids`: the prompt's ids."
_TIMES = (
    "With `return_token_timestamps`: when each of `token_ids` was completed, in nanoseconds from"
    " the start of the model's runtime."
)
_REUSED = "With `return_token_ids`: prompt tokens that came from the prefix cache."
_PERFORMANCE = "With `return_token_timestamps`."


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """How the prompt's tokens were come by."""

    cached_tokens: Annotated[
        int, Meta(description="Tokens that an earlier request had computed and this one reused.")
    ]


class Usage(msgspec.Struct, frozen=True):
    """Token counts of a request."""

    prompt_tokens: Annotated[int, Meta(description="Tokens of the prompt, template included.")]
    completion_tokens: Annotated[
        int, Meta(description="Tokens generated, the hidden end-of-sequence token included.")
    ]
    total_tokens: Annotated[int, Meta(description="The sum of both.")]
    prompt_tokens_details: Annotated[
        PromptTokensDetails, Meta(description="What of the prompt was reused.")
    ]


class Performance(msgspec.Struct, frozen=True):
    """A timed request's way to the model. Times as those of tokens."""

    ingress_ns: Annotated[int, Meta(description="When the request's body had been decoded.")]
    enqueue_ns: Annotated[int, Meta(description="When the request was given to the model's queue.")]
    reused_prompt_tokens: Annotated[
        int, Meta(description="Prompt tokens that came from the prefix cache.")
    ]


class TopLogprob(msgspec.Struct, frozen=True):
    """One of the likeliest tokens where one was generated."""

    token: Annotated[
        str, Meta(description="The token's text; half characters as replacement characters.")
    ]
    logprob: Annotated[float, Meta(description="Natural log-probability under the raw logits.")]
    bytes: Annotated[list[int], Meta(description="The token's text as UTF-8 bytes.")]


class TokenLogprob(msgspec.Struct, frozen=True):
    """A generated token with its log-probability."""

    token: Annotated[
        str, Meta(description="The token's text; half characters as replacement characters.")
    ]
    logprob: Annotated[float, Meta(description="Natural log-probability under the raw logits.")]
    bytes: Annotated[list[int], Meta(description="The token's text as UTF-8 bytes.")]
    top_logprobs: Annotated[
        list[TopLogprob],
        Meta(
            description="With `top_logprobs`: so many of the likeliest tokens in its place, the"
            " likeliest first. The generated one need not be among them."
        ),
    ] = []


class PromptLogprob(msgspec.Struct, frozen=True):
    """A token in a place of the prompt."""

    logprob: Annotated[float, Meta(description="Natural log-probability under the raw logits.")]
    rank: Annotated[
        int | None,
        Meta(
            description="Its place among all tokens, likeliest first and from 1; null where the"
            " model was prepared before its programs reported it."
        ),
    ]
    decoded_token: Annotated[
        str, Meta(description="The token's text; half characters as replacement characters.")
    ]


PromptLogprobs = list[dict[int, PromptLogprob] | None]
_PROMPT_LOGPROBS = (
    "With `prompt_logprobs`: for each prompt token the token itself and so many of the likeliest in"
    " its place, by their ids; null for the first."
)


class ChatLogprobs(msgspec.Struct, frozen=True):
    """Log-probabilities of a chat answer or chunk."""

    content: Annotated[
        list[TokenLogprob], Meta(description="One entry a generated token, hidden ones included.")
    ]
    refusal: Annotated[None, Meta(description="Always null.")] = None


class AssistantMessage(msgspec.Struct, frozen=True):
    """The answer."""

    content: Annotated[
        str | None, Meta(description="The answer's text; null where it is calls alone.")
    ]
    role: Annotated[Literal["assistant"], Meta(description="Always `assistant`.")] = "assistant"
    refusal: Annotated[None, Meta(description="Always null.")] = None
    reasoning_content: Annotated[
        str | UnsetType, Meta(description="What the model thought first, if it did.")
    ] = UNSET
    tool_calls: Annotated[
        list[ToolCall] | UnsetType, Meta(description="The calls that the answer makes, if any.")
    ] = UNSET


class ChatChoice(msgspec.Struct, frozen=True):
    """One answer."""

    message: Annotated[AssistantMessage, Meta(description="The answer.")]
    finish_reason: Annotated[FinishReason, Meta(description=_FINISH)]
    logprobs: Annotated[ChatLogprobs | None, Meta(description="With `logprobs: true`.")] = None
    index: Annotated[int, Meta(description=_INDEX)] = 0
    token_ids: Annotated[
        list[int] | UnsetType,
        Meta(description="With `return_token_ids`: every generated id, hidden ones included."),
    ] = UNSET
    token_timestamps_ns: Annotated[list[int] | UnsetType, Meta(description=_TIMES)] = UNSET


class ChatCompletion(msgspec.Struct, frozen=True):
    """The answer to a chat request."""

    id: Annotated[str, Meta(description=_ID)]
    created: Annotated[int, Meta(description=_CREATED)]
    model: Annotated[str, Meta(description=_MODEL)]
    system_fingerprint: Annotated[str, Meta(description=_FINGERPRINT)]
    choices: Annotated[list[ChatChoice], Meta(description="One answer, or `n` of them.")]
    usage: Annotated[Usage, Meta(description="Token counts.")]
    object: Annotated[Literal["chat.completion"], Meta(description="Always `chat.completion`.")] = (
        "chat.completion"
    )
    prompt_token_ids: Annotated[list[int] | UnsetType, Meta(description=_PROMPT_IDS)] = UNSET
    reused_prompt_tokens: Annotated[int | UnsetType, Meta(description=_REUSED)] = UNSET
    performance: Annotated[Performance | UnsetType, Meta(description=_PERFORMANCE)] = UNSET
    prompt_logprobs: Annotated[PromptLogprobs | UnsetType, Meta(description=_PROMPT_LOGPROBS)] = (
        UNSET
    )


class ChatDelta(msgspec.Struct, frozen=True):
    """What a chunk adds to the message."""

    role: Annotated[
        Literal["assistant"] | UnsetType, Meta(description="In the first chunk: `assistant`.")
    ] = UNSET
    content: Annotated[str | UnsetType, Meta(description="Text to append.")] = UNSET
    reasoning_content: Annotated[str | UnsetType, Meta(description="Reasoning to append.")] = UNSET
    tool_calls: Annotated[
        list[ToolCallDelta] | UnsetType, Meta(description="Calls that begin or go on.")
    ] = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True):
    """One answer's part of a chunk."""

    delta: Annotated[ChatDelta, Meta(description="What this chunk adds.")]
    finish_reason: Annotated[
        FinishReason | None, Meta(description=f"Null until the last choice chunk. {_FINISH}")
    ] = None
    logprobs: Annotated[ChatLogprobs | None, Meta(description="With `logprobs: true`.")] = None
    index: Annotated[int, Meta(description=_INDEX)] = 0
    token_ids: Annotated[
        list[int] | UnsetType,
        Meta(description="With `return_token_ids`: one id, in a chunk of its own."),
    ] = UNSET
    token_timestamps_ns: Annotated[list[int] | UnsetType, Meta(description=_TIMES)] = UNSET


class ChatChunk(msgspec.Struct, frozen=True):
    """One event of a streamed chat answer; after the last one comes `[DONE]`."""

    id: Annotated[str, Meta(description=_ID)]
    created: Annotated[int, Meta(description=_CREATED)]
    model: Annotated[str, Meta(description=_MODEL)]
    system_fingerprint: Annotated[str, Meta(description=_FINGERPRINT)]
    choices: Annotated[
        list[ChatChunkChoice], Meta(description="One entry; none in the usage chunk.")
    ]
    usage: Annotated[
        Usage | UnsetType | None,
        Meta(
            description="With `include_usage`: null, and the counts in the usage chunk. Else with"
            " `return_token_ids`: the counts in the last chunk."
        ),
    ] = UNSET
    object: Annotated[
        Literal["chat.completion.chunk"], Meta(description="Always `chat.completion.chunk`.")
    ] = "chat.completion.chunk"
    prompt_token_ids: Annotated[
        list[int] | UnsetType, Meta(description=f"{_PROMPT_IDS} In the first chunk.")
    ] = UNSET
    reused_prompt_tokens: Annotated[
        int | UnsetType, Meta(description=f"{_REUSED} In the last choice chunk.")
    ] = UNSET
    performance: Annotated[
        Performance | UnsetType, Meta(description=f"{_PERFORMANCE} In the last choice chunk.")
    ] = UNSET
    prompt_logprobs: Annotated[
        PromptLogprobs | UnsetType,
        Meta(description=f"{_PROMPT_LOGPROBS} In each choice's first chunk."),
    ] = UNSET


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """Log-probabilities of a plain completion or chunk: lists of one entry a token."""

    tokens: Annotated[list[str], Meta(description="Each token's text.")]
    token_logprobs: Annotated[
        list[float | None],
        Meta(
            description="Natural log-probabilities under the raw logits; null for a prompt's first"
            " token."
        ),
    ]
    text_offset: Annotated[
        list[int],
        Meta(description="Characters of text before each token, the prompt's with `echo`."),
    ]
    top_logprobs: Annotated[
        list[dict[str, float] | None] | None,
        Meta(
            description="With `logprobs` above 0: the likeliest tokens in its place by their text,"
            " likeliest first, and the one that is there; null for a prompt's first token."
        ),
    ] = None


class CompletionChoice(msgspec.Struct, frozen=True):
    """One continuation, or a chunk's part of it."""

    text: Annotated[
        str,
        Meta(
            description="Generated text, after the prompt's with `echo`; in a chunk, text to add."
        ),
    ]
    finish_reason: Annotated[
        FinishReason | None, Meta(description=f"Null until the last choice chunk. {_FINISH}")
    ]
    logprobs: Annotated[CompletionLogprobs | None, Meta(description="With `logprobs`.")] = None
    index: Annotated[
        int,
        Meta(description="The choice's number, from 0: answer j to prompt i has i · `n` + j."),
    ] = 0
    prompt_logprobs: Annotated[
        PromptLogprobs | UnsetType,
        Meta(description=f"{_PROMPT_LOGPROBS} In a stream, in the choice's first chunk."),
    ] = UNSET


class Completion(msgspec.Struct, frozen=True):
    """The answer to a completions request; a stream sends it in parts, then `[DONE]`."""

    id: Annotated[str, Meta(description=_ID)]
    created: Annotated[int, Meta(description=_CREATED)]
    model: Annotated[str, Meta(description=_MODEL)]
    system_fingerprint: Annotated[str, Meta(description=_FINGERPRINT)]
    choices: Annotated[
        list[CompletionChoice], Meta(description="One entry; none in a stream's usage chunk.")
    ]
    usage: Annotated[
        Usage | UnsetType | None,
        Meta(
            description="Token counts. In a stream only with `include_usage`: null, and the counts"
            " in the usage chunk."
        ),
    ] = UNSET
    object: Annotated[Literal["text_completion"], Meta(description="Always `text_completion`.")] = (
        "text_completion"
    )
