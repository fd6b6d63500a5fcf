"""The description: complete, consistent with itself and with what the server sends."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.routing import Route

from helios import server
from helios.server.app import api_routes
from helios.server.calls import Call, chat_call, completion_call
from helios.server.failures import ErrorBody
from helios.server.lifecycle import Lifecycle
from helios.server.metrics import HttpMetrics
from helios.server.openapi import describe
from helios.server.operations import OPERATIONS, Operation
from helios.server.options import AccessOptions, HttpOptions, ProxyOptions
from helios.server.options.access import key_digest
from helios.server.prompt_calls import PromptCall, detokenize_call, render_call, tokenize_call

KEYED = HttpOptions(access=AccessOptions(key_digests=(key_digest(b"sk"),)))
DOCUMENT = describe(KEYED)
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
DESCRIBED: list[dict[str, Any]] = [
    operation for path in DOCUMENT["paths"].values() for operation in path.values()
]
WITH_BODY = [operation for operation in OPERATIONS if operation.body is not None]
PARSERS: dict[str, Callable[[bytes], Call | PromptCall]] = {
    "/v1/chat/completions": chat_call,
    "/v1/completions": completion_call,
    "/tokenize": tokenize_call,
    "/detokenize": detokenize_call,
    "/v1/render": render_call,
}


def _references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def test_every_reference_leads_somewhere() -> None:
    references = set(_references(DOCUMENT))
    assert references
    for reference in references:
        first, *names = reference.split("/")
        assert first == "#"
        found: Any = DOCUMENT
        for name in names:
            found = found[name]
        assert found


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_every_field_is_described(name: str) -> None:
    schema = SCHEMAS[name]
    assert schema["description"]
    assert schema["properties"]
    for field, described in schema["properties"].items():
        assert described.get("description"), f"{name}.{field}"


@pytest.mark.parametrize("kind", ["headers", "parameters", "schemas"])
def test_every_component_is_used(kind: str) -> None:
    prefix = f"#/components/{kind}/"
    used = {ref.removeprefix(prefix) for ref in _references(DOCUMENT) if ref.startswith(prefix)}
    assert used == set(DOCUMENT["components"][kind])


def test_every_operation_has_a_name_of_its_own_and_answers() -> None:
    assert len({operation["operationId"] for operation in DESCRIBED}) == len(DESCRIBED)
    for operation in DESCRIBED:
        assert "200" in operation["responses"]
        for response in operation["responses"].values():
            assert response["description"]
            assert response["content"]
            assert "x-request-id" in response["headers"]


def test_the_operations_are_the_routes() -> None:
    routes = {
        (route.path.replace(":path", ""), method.lower())
        for route in api_routes(Lifecycle(), HttpMetrics(), HttpOptions())
        if isinstance(route, Route)
        for method in (route.methods or ())
        if method != "HEAD"  # whatever answers GET answers it
    }
    assert {(operation.path, operation.method) for operation in OPERATIONS} == routes


@pytest.mark.parametrize("operation", WITH_BODY, ids=lambda operation: operation.path)
def test_examples_are_valid(operation: Operation) -> None:
    """They pass all that is checked before a model is asked, and have no unknown field."""
    assert operation.examples
    for name, example in operation.examples.items():
        assert msgspec.convert(example, operation.body), name
        if operation.path in PARSERS:
            assert not PARSERS[operation.path](msgspec.json.encode(example)).ignored, name


def test_errors_are_described_with_an_example() -> None:
    for operation in DESCRIBED:
        for status, response in operation["responses"].items():
            content = response["content"].get("application/json", {})
            if content.get("schema") == {"$ref": "#/components/schemas/ErrorBody"}:
                error = msgspec.convert(content["example"], ErrorBody).error
                assert error.code
                assert (error.type == "invalid_request_error") == (
                    status[0] == "4" and status != "429"
                )


def test_every_error_status_is_described() -> None:
    """Of those that the sources raise by number."""
    raised = {
        call.args[0].value
        for path in Path(server.__path__[0]).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "ApiError"
        if call.args and isinstance(call.args[0], ast.Constant)
    }
    assert {400, 404, 503} < raised
    described = {int(status) for operation in DESCRIBED for status in operation["responses"]}
    assert raised <= described


def test_what_needs_a_key_says_so() -> None:
    keyed = {op["operationId"] for op in DESCRIBED if op.get("security") == [{"key": []}]}
    refused = {op["operationId"] for op in DESCRIBED if "401" in op["responses"]}
    names = {operation.name for operation in OPERATIONS}
    assert keyed == refused == names - {"readHealth", "readReadiness", "readVersion"}
    assert set(DOCUMENT["components"]["securitySchemes"]) == {"key"}
    access = AccessOptions(KEYED.access.key_digests, open_metrics=True)
    assert "security" not in describe(HttpOptions(access))["paths"]["/metrics"]["get"]
    without = describe()
    assert "401" not in str(without["paths"])
    assert "securitySchemes" not in without["components"]
    assert set(without["components"]["headers"]) == set(_headers(without))


def _headers(document: dict[str, Any]) -> Iterator[str]:
    prefix = "#/components/headers/"
    return (ref.removeprefix(prefix) for ref in _references(document) if ref.startswith(prefix))


def test_paths_begin_where_a_proxy_shows_them() -> None:
    assert DOCUMENT["servers"] == [{"url": "/"}]
    proxied = describe(HttpOptions(proxy=ProxyOptions("/llm")))
    assert proxied["servers"] == [{"url": "/llm"}]


def test_what_isn_t_supported_has_its_neutral_values_alone() -> None:
    chat = SCHEMAS["ChatRequest"]["properties"]
    assert chat["functions"]["enum"] == [None, []]
    assert "enum" not in chat["response_format"]
    assert chat["audio"]["enum"] == [None]
    assert "enum" not in chat["temperature"]


def test_required_fields() -> None:
    assert set(SCHEMAS["ChatRequest"]["required"]) == {"model", "messages"}
    assert set(SCHEMAS["CompletionRequest"]["required"]) == {"model", "prompt"}


def test_ranges_are_described() -> None:
    temperature = SCHEMAS["ChatRequest"]["properties"]["temperature"]
    assert '"maximum": 2' in str(temperature).replace("'", '"')
