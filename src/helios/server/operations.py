"""What each route takes and answers, as data for `/openapi.json`.

`openapi` writes it down in OpenAPI's words; a test compares it with the routes that the
application has. Whoever adds a route adds its `Operation` to `OPERATIONS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from helios.dataclass import dataclass
from helios.server.abort import Aborted, AbortRequest
from helios.server.answers import ChatChunk, ChatCompletion, Completion
from helios.server.bodies import ChatRequest, CompletionRequest
from helios.server.models import Model, ModelList
from helios.server.prompt_bodies import (
    Detokenized,
    DetokenizeRequest,
    Rendered,
    Tokenized,
    TokenizeRequest,
)
from helios.server.server_info import ServerInfo
from helios.server.state_answers import Health, Readiness, Version

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
TEXT: Final = "text/plain"

# A response's schema: a type, or where there is none a JSON schema.
Schema = type | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """A response that isn't an error: its schema by media type, its headers besides those that
    every response has."""

    description: str
    contents: Mapping[str, Schema]
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of a path. `answers` are those that aren't errors, by status; `errors` are the
    statuses that come with an error object. A body is of the type `body`, or of `other_body` if
    there is one. `examples` are bodies by what they show; path parameters are described by
    name."""

    path: str
    method: str
    name: str
    summary: str
    answers: Mapping[int, Answer]
    errors: tuple[int, ...] = ()
    body: type | None = None
    other_body: type | None = None
    examples: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)


_MODEL: Final = "demo"
_QUESTION: Final = [{"role": "user", "content": "Name three colours."}]
_GENERATION_ERRORS: Final = (400, 404, 413, 415, 429, 500, 503, 504)
_STREAMED: Final = (
    "The answer, or with `stream: true` its chunks as server-sent events, of which the last one is"
    " `[DONE]`. A stream that fails ends with an ErrorBody event and without `[DONE]`."
)

_CHAT_EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "a question": {"model": _MODEL, "messages": _QUESTION, "max_tokens": 32},
    "a conversation, streamed": {
        "model": _MODEL,
        "messages": [
            {"role": "system", "content": "You answer in one sentence."},
            {"role": "user", "content": [{"type": "text", "text": "What is a helix?"}]},
            {"role": "assistant", "content": "A curve that winds around an axis."},
            {"role": "user", "content": "Where is one found?"},
        ],
        "max_completion_tokens": 32,
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "several choices, sampled": {
        "model": _MODEL,
        "messages": _QUESTION,
        "max_tokens": 16,
        "n": 2,
        "seed": 7,
        "temperature": 0.8,
        "top_p": 0.9,
        "stop": ["\n", "."],
    },
    "the likeliest tokens": {
        "model": _MODEL,
        "messages": _QUESTION,
        "max_tokens": 4,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 3,
    },
    "every token id": {
        "model": _MODEL,
        "messages": _QUESTION,
        "max_tokens": 4,
        "return_token_ids": True,
        "return_token_timestamps": True,
    },
}

_COMPLETION_EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "a text": {"model": _MODEL, "prompt": "Once upon a time", "max_tokens": 16},
    "token ids, streamed": {
        "model": _MODEL,
        "prompt": [72, 101, 108],
        "max_tokens": 8,
        "stream": True,
    },
    "the likeliest tokens": {
        "model": _MODEL,
        "prompt": "One, two,",
        "max_tokens": 4,
        "temperature": 0,
        "logprobs": 2,
    },
}


_TOKENIZE_EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "a text": {"model": _MODEL, "prompt": "Once upon a time", "return_token_strs": True},
    "a conversation": {"model": _MODEL, "messages": _QUESTION},
}
_RENDER_EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "a conversation": {"model": _MODEL, "messages": _QUESTION, "max_tokens": 32, "seed": 7},
}


def _prompt(
    path: str,
    name: str,
    summary: str,
    answer: type,
    body: type,
    examples: Mapping[str, Mapping[str, Any]],
    other_body: type | None = None,
) -> Operation:
    """A route that only shows prompts."""
    return Operation(
        path,
        "post",
        name,
        summary,
        {200: Answer(summary, {JSON: answer}, ("x-helios-ignored",))},
        errors=_GENERATION_ERRORS,
        body=body,
        other_body=other_body,
        examples=examples,
    )


def _read(path: str, name: str, summary: str, answer: type, *failing: int) -> Operation:
    """A GET of something that is always there; `failing` are the statuses of its bad states."""
    answers = {200: Answer(summary, {JSON: answer})}
    answers |= {
        status: Answer("It doesn't; the body says why.", {JSON: answer}) for status in failing
    }
    return Operation(path, "get", name, summary, answers)


OPERATIONS: Final = (
    Operation(
        "/v1/chat/completions",
        "post",
        "createChatCompletion",
        "Answer a conversation",
        {200: Answer(_STREAMED, {JSON: ChatCompletion, EVENTS: ChatChunk}, ("x-helios-ignored",))},
        errors=_GENERATION_ERRORS,
        body=ChatRequest,
        examples=_CHAT_EXAMPLES,
    ),
    Operation(
        "/v1/completions",
        "post",
        "createCompletion",
        "Continue a text",
        {200: Answer(_STREAMED, {JSON: Completion, EVENTS: Completion}, ("x-helios-ignored",))},
        errors=_GENERATION_ERRORS,
        body=CompletionRequest,
        examples=_COMPLETION_EXAMPLES,
    ),
    _prompt(
        "/tokenize",
        "tokenize",
        "The token ids of a text or a conversation",
        Tokenized,
        TokenizeRequest,
        _TOKENIZE_EXAMPLES,
    ),
    _prompt(
        "/detokenize",
        "detokenize",
        "The text of token ids",
        Detokenized,
        DetokenizeRequest,
        {"some ids": {"model": _MODEL, "tokens": [72, 101, 108]}},
    ),
    _prompt(
        "/v1/render",
        "renderPrompt",
        "What a chat or completions body would ask of the model",
        Rendered,
        ChatRequest,
        _RENDER_EXAMPLES,
        CompletionRequest,
    ),
    Operation(
        "/v1/models",
        "get",
        "listModels",
        "The served models",
        {200: Answer("The served id, then its aliases.", {JSON: ModelList})},
        errors=(500, 503),
    ),
    Operation(
        "/v1/models/{model}",
        "get",
        "readModel",
        "One served model",
        {200: Answer("The model of that name.", {JSON: Model})},
        errors=(404, 500, 503),
        parameters={"model": "A served id or alias."},
    ),
    _read("/health", "readHealth", "Whether the server works", Health, 500, 503),
    _read("/ready", "readReadiness", "Whether it answers now", Readiness, 503),
    _read("/version", "readVersion", "What runs here", Version),
    _read("/server_info", "readServerInfo", "Options and capacities in force", ServerInfo),
    Operation(
        "/metrics",
        "get",
        "readMetrics",
        "Prometheus metrics",
        {200: Answer("Counters, gauges and histograms as text.", {TEXT: {"type": "string"}})},
    ),
    Operation(
        "/abort",
        "post",
        "abortRequest",
        "End a running request by its id",
        {200: Answer("It ends.", {JSON: Aborted}, ("x-helios-ignored",))},
        errors=(400, 404, 413, 415),
        body=AbortRequest,
        examples={"a chat request": {"request_id": "chatcmpl-7c9b"}},
    ),
    Operation(
        "/reset_prefix_cache",
        "post",
        "resetPrefixCache",
        "Reuse nothing that was computed before, from files neither",
        {200: Answer("It is so.", {JSON: {"type": "object", "maxProperties": 0}})},
        errors=(500, 503),
    ),
    Operation(
        "/openapi.json",
        "get",
        "readDescription",
        "This document",
        {200: Answer("OpenAPI 3.1.", {JSON: {"type": "object"}})},
    ),
)
