"""What a request's tools become."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from helios.frontend.grammar.constraint import Constraint
from helios.server.tool_bodies import ToolDefinition, tools_of
from tests.frontend.grammar.test_envelopes import CALLING, Core


@pytest.mark.parametrize("function", [{}, {"parameters": None}, {"parameters": {}}], ids=str)
def test_a_function_without_parameters_gets_none(function: dict[str, Any]) -> None:
    body = {"type": "function", "function": {"name": "now", **function}}
    definition = msgspec.convert(body, ToolDefinition)
    tools = tools_of([definition], "required", parallel=False)
    (by,) = [by for by in CALLING if by.name == "tagged JSON"]
    for response in Core(by).answers(Constraint(None, tools), count=6):
        assert response.named == [("now", {})]
