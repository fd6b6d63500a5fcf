"""The description: complete, consistent with itself and with what the server sends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from helios.server.lifecycle import Lifecycle
from helios.server.metrics import HttpMetrics
from helios.server.openapi import describe
from helios.server.routes import read_routes

DOCUMENT = describe()
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]


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
        prefix, _, name = reference.rpartition("/")
        assert prefix == "#/components/schemas"
        assert name in SCHEMAS


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_every_field_is_described(name: str) -> None:
    schema = SCHEMAS[name]
    assert schema["description"]
    assert schema["properties"]
    for field, described in schema["properties"].items():
        assert described.get("description"), f"{name}.{field}"


def test_every_schema_is_used() -> None:
    used = {reference.rpartition("/")[2] for reference in _references(DOCUMENT)}
    assert used == set(SCHEMAS)


def test_every_operation_has_a_name_and_answers() -> None:
    operations = [op for path in DOCUMENT["paths"].values() for op in path.values()]
    assert len({op["operationId"] for op in operations}) == len(operations)
    for operation in operations:
        assert "200" in operation["responses"]
        for response in operation["responses"].values():
            assert response["description"]
            assert response["content"]


def test_the_paths_are_the_routes() -> None:
    routes = {route.path.replace(":path", "") for route in read_routes(Lifecycle(), HttpMetrics())}
    routes |= {"/v1/chat/completions", "/v1/completions", "/reset_prefix_cache"}
    assert set(DOCUMENT["paths"]) == routes


def test_required_fields() -> None:
    assert set(SCHEMAS["ChatRequest"]["required"]) == {"model", "messages"}
    assert set(SCHEMAS["CompletionRequest"]["required"]) == {"model", "prompt"}


def test_ranges_are_described() -> None:
    temperature = SCHEMAS["ChatRequest"]["properties"]["temperature"]
    assert '"maximum": 2' in str(temperature).replace("'", '"')
