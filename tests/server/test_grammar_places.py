"""Errors about tools say which one, and those about schemas where in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from helios.frontend.grammar import compiler
from tests.frontend.response.test_json_calls import HERMES
from tests.server.desk import CORE, TOOLS, Desk, desk_of
from tests.server.syntaxes import chat, core


def tool(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def refused(desk: Desk, **more: Any) -> dict[str, Any]:
    response = desk.server.http.post("/v1/render", json=chat(**more))
    assert response.status_code == 400, response.text
    return dict(response.json()["error"])


@pytest.fixture(scope="module", params=["tags", "JSON"])
def desk(request: pytest.FixtureRequest) -> Iterator[Desk]:
    yield from desk_of(CORE if request.param == "tags" else core(HERMES))


def named(length: int) -> dict[str, Any]:
    """A schema of about so many characters."""
    return {"type": "object", "properties": {"n" * length: {"type": "integer"}}}


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": {"a": {"not": {}}}}, ".properties.a"),
        ({"properties": {"a b": {"type": "array", "items": {"not": {}}}}},
         '.properties["a b"].items'),
        ({"properties": {"a": {"type": "array", "prefixItems": [{}, {"if": {}}]}}},
         ".properties.a.prefixItems[1]"),
        ({"properties": {}, "required": 5}, ""),
        ({"properties": {}, "not": {}}, None),
    ],
    ids=str,
)  # fmt: skip
def test_a_schemas_place_is_named_with_its_tool(
    desk: Desk, schema: dict[str, Any], place: str | None
) -> None:
    tools = [*TOOLS, tool("odd", {"type": "object", **schema}), tool("last", named(1))]
    error = refused(desk, tools=tools, tool_choice="required")
    where = "tools[2].function.parameters"
    assert error["param"].startswith(where)
    assert error["message"].startswith(f"{error['param']}: ")
    if place is not None:
        assert error["param"].removeprefix(where).startswith(place)


def test_a_grammar_that_is_too_large_names_the_tool_that_is(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "SIZE_LIMIT", 1800)
    small = [tool(f"small{index}", named(20)) for index in range(3)]
    error = refused(desk, tools=[*small, tool("large", named(1900))], tool_choice="required")
    assert error["param"] == "tools[3].function.parameters"
    many = [tool(f"small{index}", named(90)) for index in range(12)]
    error = refused(desk, tools=many, tool_choice="required")
    assert error["param"] == "tools", "none is too large by itself"
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": named(1900)}}
    error = refused(desk, tools=small, response_format=form)
    assert error["param"] == "response_format.json_schema.schema"
    form["json_schema"]["schema"] = named(20)  # type: ignore[index]
    error = refused(desk, tools=[*small, tool("large", named(1900))], response_format=form)
    assert error["param"] == "tools[3].function.parameters"


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"guided_json": {"properties": {"a": {"not": {}}}}}, "guided_json.properties.a"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"anyOf": [{}, {"if": {}}]}},
                }
            },
            "response_format.json_schema.schema.anyOf[1]",
        ),
        ({"structured_outputs": {"json": {"items": {"a": 1}}}}, "structured_outputs.json.items"),
    ],
    ids=str,
)
def test_a_forms_place_is_named(desk: Desk, body: dict[str, Any], place: str) -> None:
    assert refused(desk, **body)["param"] == place


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"name": "no name"}, "tools[2].function.name"),
        ({"name": "add"}, "tools[2].function.name"),
        ({"name": 5}, "tools[2].function.name"),
        ({"parameters": []}, "tools[2].function.parameters"),
        ({"parameters": {"type": "array"}}, "tools[2].function.parameters"),
        ({"strict": "yes"}, "tools[2].function.strict"),
        ({"description": "\ufdd0"}, "tools[2]"),
    ],
    ids=str,
)
def test_what_else_is_wrong_with_a_tool_names_it(
    desk: Desk, change: dict[str, Any], place: str
) -> None:
    odd = tool("odd", named(1))
    odd["function"].update(change)
    assert refused(desk, tools=[*TOOLS, odd])["param"] == place
