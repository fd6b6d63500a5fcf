"""What a request's tools become."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from helios.frontend.grammar.constraint import Constraint
from helios.server.tool_bodies import ToolDefinition, tools_of
from tests.frontend.grammar.test_envelopes import CALLING, Core


@pytest.mark.parametrize(
    "function",
    [
        {},
        {"parameters": None},
        {"parameters": {}},
        {"parameters": {"properties": {}}},
        {"parameters": {"type": "object", "properties": {}, "required": [], "title": "Now"}},
    ],
    ids=str,
)
def test_a_function_without_parameters_gets_none(function: dict[str, Any]) -> None:
    body = {"type": "function", "function": {"name": "now", **function}}
    definition = msgspec.convert(body, ToolDefinition)
    tools = tools_of([definition], "required", parallel=False)
    (by,) = [by for by in CALLING if by.name == "tagged JSON"]
    for response in Core(by).answers(Constraint(None, tools), count=6):
        assert response.named == [("now", {})]


@pytest.mark.parametrize(
    "more",
    [{"additionalProperties": True}, {"patternProperties": {"^a": {}}}, {"anyOf": [{}]}],
    ids=str,
)
def test_a_function_that_says_what_else_there_may_be_keeps_its_schema(more: dict[str, Any]) -> None:
    parameters = {"type": "object", "properties": {}, **more}
    body = {"type": "function", "function": {"name": "now", "parameters": parameters}}
    (tool,) = tools_of([msgspec.convert(body, ToolDefinition)], "auto", parallel=None).declared
    assert tool.parameters == parameters
