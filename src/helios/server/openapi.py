"""`/openapi.json`: the API's description, written from `operations` and the body types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from helios.server.failures import ApiError, ErrorBody
from helios.server.generation_bodies import GenerationRequest
from helios.server.operations import EVENTS, JSON, OPERATIONS, Answer, Operation, Schema
from helios.server.options import HttpOptions
from helios.server.route_paths import METRICS, PROBES
from helios.server.unsupported import neutral_values
from helios.version import VERSION

# What an error status means, and an example of one that comes with it.
_ERRORS: Final[Mapping[int, tuple[str, ApiError]]] = {
    400: (
        "The body is invalid or asks for something unsupported; `param` names the field.",
        ApiError(400, "temperature: …", code="invalid_value", param="temperature"),
    ),
    401: (
        "The request has none of the server's API keys.",
        ApiError(
            401,
            "this server wants an API key. Send it as Authorization: Bearer KEY",
            code="invalid_api_key",
        ),
    ),
    404: (
        "There is no such model, or no such request.",
        ApiError(404, "there is no model 'gpt'", code="model_not_found", param="model"),
    ),
    408: (
        "The body didn't arrive in time.",
        ApiError(408, "the body didn't arrive within 60 s. Send it at once", code="body_timeout"),
    ),
    413: (
        "The body is too large.",
        ApiError(
            413,
            "the body is larger than 16777216 bytes. Send a smaller one",
            code="body_too_large",
        ),
    ),
    415: (
        "The body is compressed, or encoded in another way.",
        ApiError(
            415,
            "Content-Encoding 'gzip' is not supported. Send the body as it is, without that header",
            code="unsupported_encoding",
        ),
    ),
    429: (
        "All admission permits are taken.",
        ApiError(429, "the queue is full. Try again later", code="queue_full"),
    ),
    500: (
        "The model failed, or the server has a bug.",
        ApiError(500, "executing the request failed", code="execution_failed"),
    ),
    503: (
        "The server is loading or draining, has too many connections, or didn't admit the request.",
        ApiError(503, "the model is being loaded. Try again in a moment", code="loading_model"),
    ),
    504: (
        "The answer took longer than this server lets it.",
        ApiError(504, "the request wasn't answered within 60 s", code="request_timeout"),
    ),
}
_ERROR_HEADERS: Final = {
    401: ("www-authenticate",),
    429: ("retry-after",),
    503: ("retry-after",),
}

_HEADERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "x-request-id": {
        "description": "The client's own id, or a fresh one; the server's log has it.",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
    },
    "x-helios-ignored": {
        "description": "Names of body fields that have no meaning here, with commas between; what"
        " can't stand in a header is percent-encoded. After 20 names comes the number of the"
        " others: `+3`.",
        "schema": {"type": "string"},
    },
    "www-authenticate": {
        "description": "How to show a key.",
        "schema": {"type": "string"},
    },
    "retry-after": {
        "description": "Seconds after which to try again.",
        "schema": {"type": "string", "pattern": "^[0-9]+$"},
    },
}
_REQUEST_ID: Final = {
    "name": "x-request-id",
    "in": "header",
    "description": "Your own name for the request: up to 128 printable ASCII characters without"
    " spaces. Anything else is replaced.",
    "schema": {"type": "string"},
}


_KEY: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "One of the keys that the server was started with.",
}


def describe(options: HttpOptions | None = None) -> dict[str, Any]:
    """The OpenAPI 3.1 document of a server with these options."""
    options = options or HttpOptions()
    access = options.access
    keyless = PROBES | {METRICS} if access.open_metrics else PROBES
    types = {id(kind): kind for operation in OPERATIONS for kind in _types(operation)}
    _, schemas = msgspec.json.schema_components(
        types.values(), ref_template="#/components/schemas/{name}"
    )
    for kind in types.values():
        if issubclass(kind, GenerationRequest):
            _say_what_is_supported(schemas[kind.__name__]["properties"])
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        keyed = bool(access.key_digests) and operation.path not in keyless
        paths.setdefault(operation.path, {})[operation.method] = _described(operation, keyed)
    components: dict[str, Any] = {
        "schemas": schemas,
        "headers": _HEADERS,
        "parameters": {"x-request-id": _REQUEST_ID},
    }
    if access.key_digests:
        components["securitySchemes"] = {"key": _KEY}
    else:
        components["headers"] = {
            name: header for name, header in _HEADERS.items() if name != "www-authenticate"
        }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Helios",
            "version": VERSION,
            "description": "An OpenAI-compatible API over one prepared model.",
        },
        "servers": [{"url": options.proxy.root_path or "/"}],
        "paths": paths,
        "components": components,
    }


def _types(operation: Operation) -> Iterator[type]:
    """The types of an operation's bodies, of errors too."""
    yield ErrorBody
    yield from (kind for kind in (operation.body, operation.other_body) if kind is not None)
    for answer in operation.answers.values():
        yield from (kind for kind in answer.contents.values() if isinstance(kind, type))


def _say_what_is_supported(properties: dict[str, Any]) -> None:
    """Adds the values that a field may have which isn't supported yet."""
    for name, schema in properties.items():
        values = neutral_values(name)
        if values is not None:
            schema["enum"] = [None, *values]


def _errors(operation: Operation, keyed: bool) -> list[int]:
    """Statuses of error objects: the operation's own, and those that come before it is asked.
    Probes are answered whatever else is refused."""
    statuses = set(operation.errors)
    if operation.path not in PROBES:
        statuses |= {500, 503}
    if operation.body is not None:
        statuses.add(408)
    if keyed:
        statuses.add(401)
    return sorted(statuses)


def _described(operation: Operation, keyed: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [
            *(_path_parameter(name, text) for name, text in operation.parameters.items()),
            {"$ref": "#/components/parameters/x-request-id"},
        ],
        "responses": {
            **{str(status): _answer(answer) for status, answer in operation.answers.items()},
            **{str(status): _error(status) for status in _errors(operation, keyed)},
        },
    }
    if keyed:
        described["security"] = [{"key": []}]
    if operation.body is not None:
        schema = _schema(operation.body)
        if operation.other_body is not None:
            schema = {"anyOf": [schema, _schema(operation.other_body)]}
        content: dict[str, Any] = {"schema": schema}
        if operation.examples:
            content["examples"] = {
                name: {"value": value} for name, value in operation.examples.items()
            }
        described["requestBody"] = {"required": True, "content": {JSON: content}}
    return described


def _path_parameter(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": {"type": "string"},
    }


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "description": answer.description,
        "headers": _headers(*answer.headers),
        "content": {
            media_type: {"schema": _event(schema) if media_type == EVENTS else _schema(schema)}
            for media_type, schema in answer.contents.items()
        },
    }


def _event(schema: Schema) -> dict[str, Any]:
    """One server-sent event: OpenAPI 3.1 has no schema for all of them."""
    chunk = {"anyOf": [_schema(schema), _schema(ErrorBody)]}
    return {
        "type": "object",
        "required": ["data"],
        "properties": {
            "data": {
                "type": "string",
                "anyOf": [
                    {"const": "[DONE]"},
                    {"contentMediaType": JSON, "contentSchema": chunk},
                ],
            }
        },
    }


def _error(status: int) -> dict[str, Any]:
    description, example = _ERRORS[status]
    return {
        "description": description,
        "headers": _headers(*_ERROR_HEADERS.get(status, ())),
        "content": {
            JSON: {"schema": _schema(ErrorBody), "example": msgspec.to_builtins(example.body)}
        },
    }


def _headers(*more: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in ("x-request-id", *more)}


def _schema(schema: Schema) -> dict[str, Any]:
    if isinstance(schema, type):
        return {"$ref": f"#/components/schemas/{schema.__name__}"}
    return dict(schema)
