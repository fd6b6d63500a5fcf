"""`/openapi.json`: the API's description, made from the body types."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from helios.server.answers import (
    ChatChunk,
    ChatCompletion,
    Completion,
    Health,
    ModelList,
    Readiness,
    Version,
)
from helios.server.answers import Model as ModelAnswer
from helios.server.bodies import ChatRequest, CompletionRequest
from helios.server.failures import ErrorBody
from helios.version import VERSION

_TYPES: Final = (
    ChatRequest,
    CompletionRequest,
    ChatCompletion,
    ChatChunk,
    Completion,
    ModelAnswer,
    ModelList,
    Health,
    Readiness,
    Version,
    ErrorBody,
)

_ERRORS: Final = {
    400: "The body is invalid or asks for something unsupported; `param` names the field.",
    404: "There is no such model.",
    413: "The body is too large.",
    429: "All admission permits are taken.",
    500: "The model failed.",
    503: "The server is loading or draining, or the request wasn't admitted.",
}


def describe() -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    _, components = msgspec.json.schema_components(
        _TYPES, ref_template="#/components/schemas/{name}"
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Helios",
            "version": VERSION,
            "description": "An OpenAI-compatible API over one prepared model.",
        },
        "paths": {
            "/v1/chat/completions": _generation(
                "createChatCompletion",
                "Answer a conversation",
                "ChatRequest",
                "ChatCompletion",
                "ChatChunk",
            ),
            "/v1/completions": _generation(
                "createCompletion",
                "Continue a text",
                "CompletionRequest",
                "Completion",
                "Completion",
            ),
            "/v1/models": _read("listModels", "The served models", "ModelList"),
            "/v1/models/{model}": _one_model(),
            "/health": _read("readHealth", "Whether the server works", "Health", failing=500),
            "/ready": _read("readReadiness", "Whether it answers now", "Readiness", failing=503),
            "/version": _read("readVersion", "What runs here", "Version"),
            "/metrics": _text("readMetrics", "Prometheus metrics"),
            "/reset_prefix_cache": _reset(),
            "/openapi.json": _object("readDescription", "This document"),
        },
        "components": {"schemas": components},
    }


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json_content(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": _reference(name)}}


def _error_responses(*statuses: int) -> dict[str, Any]:
    return {
        str(status): {"description": _ERRORS[status], "content": _json_content("ErrorBody")}
        for status in statuses
    }


def _generation(
    operation: str, summary: str, request: str, answer: str, chunk: str
) -> dict[str, Any]:
    success = {
        "description": "The answer, or with `stream: true` its chunks as server-sent events."
        " A stream that fails ends with an ErrorBody event and without `[DONE]`.",
        "headers": {
            "x-request-id": {
                "description": "The client's own id, or a fresh one.",
                "schema": {"type": "string"},
            },
            "x-helios-ignored": {
                "description": "Names of body fields that have no meaning here.",
                "schema": {"type": "string"},
            },
        },
        "content": {
            **_json_content(answer),
            "text/event-stream": {"schema": _reference(chunk)},
        },
    }
    return {
        "post": {
            "operationId": operation,
            "summary": summary,
            "requestBody": {"required": True, "content": _json_content(request)},
            "responses": {"200": success, **_error_responses(*_ERRORS)},
        }
    }


def _read(
    operation: str, summary: str, answer: str, *, failing: int | None = None
) -> dict[str, Any]:
    responses = {"200": {"description": summary, "content": _json_content(answer)}}
    if failing is not None:
        responses[str(failing)] = {
            "description": "It doesn't; the body says why.",
            "content": _json_content(answer),
        }
    return {"get": {"operationId": operation, "summary": summary, "responses": responses}}


def _one_model() -> dict[str, Any]:
    described = _read("readModel", "One served model", "Model")
    described["get"]["parameters"] = [
        {
            "name": "model",
            "in": "path",
            "required": True,
            "description": "A served id or alias.",
            "schema": {"type": "string"},
        }
    ]
    described["get"]["responses"].update(_error_responses(404))
    return described


def _reset() -> dict[str, Any]:
    return {
        "post": {
            "operationId": "resetPrefixCache",
            "summary": "Reuse nothing that was computed before, from files neither",
            "responses": {
                "200": {
                    "description": "It is so.",
                    "content": {"application/json": {"schema": {"type": "object"}}},
                },
                **_error_responses(500, 503),
            },
        }
    }


def _text(operation: str, summary: str) -> dict[str, Any]:
    content = {"text/plain": {"schema": {"type": "string"}}}
    responses = {"200": {"description": summary, "content": content}}
    return {"get": {"operationId": operation, "summary": summary, "responses": responses}}


def _object(operation: str, summary: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object"}}}
    responses = {"200": {"description": summary, "content": content}}
    return {"get": {"operationId": operation, "summary": summary, "responses": responses}}
