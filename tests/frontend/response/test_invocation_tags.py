"""Calls as a block of named invocations, in all dialects."""

from __future__ import annotations

import pytest

from helios.schema.contract_pb2 import ToolSyntax
from ignition.preparation import syntaxes
from tests.frontend.response.reading import QUOTE, Syntax, read_every_way, syntax

_BAR = "\uff5cDSML\uff5c"


def _dsml(name: str, tools: ToolSyntax, *, token: bool) -> Syntax:
    return syntax(
        name,
        tool_parser="DSML",
        tool_syntax=tools,
        reasoning_parser="THINK_TAGS",
        reasoning_syntax=syntaxes.think_tags_ended_by(tools),
        tokens=["<think>", "</think>", _BAR] if token else [],
    )


V32 = _dsml("DSML function_calls", syntaxes.DSML_FUNCTION_CALLS, token=True)
V4 = _dsml("DSML tool_calls", syntaxes.DSML_TOOL_CALLS, token=True)
V41 = _dsml("DSML calls", syntaxes.DSML_CALLS, token=True)
SPELLED = _dsml("DSML without tokens", syntaxes.DSML_TOOL_CALLS, token=False)
EVERY = [V32, V4, V41, SPELLED]
INTEGER, STRING = {"type": "integer"}, {"type": "string"}


def written(by: Syntax, text: str) -> str:
    """A text with `[calls]`, `[invoke …]`, `[parameter …]` and their closing tags, in the
    dialect's writing."""
    tools = by.contract.tool_syntax
    for short, marker in (
        ("[calls]", tools.open),
        ("[/calls]", tools.close),
        ("[invoke ", tools.call_open),
        ("[/invoke]", tools.call_close),
        ("[parameter ", tools.argument_open),
        ("[/parameter]", tools.argument_close),
    ):
        text = text.replace(short, marker)
    return text


@pytest.mark.parametrize("by", EVERY, ids=lambda by: by.name)
def test_block_after_text(by: Syntax) -> None:
    text = 'ok\n\n[calls]\n[invoke up">\n\n[/invoke]\n[/calls]'
    response = read_every_way(by, written(by, text), {})
    assert (response.content, response.named) == ("ok", [("up", {})])


@pytest.mark.parametrize("by", EVERY, ids=lambda by: by.name)
def test_text_after_the_block_is_content(by: Syntax) -> None:
    text = '[calls]\n[invoke up">\n[/invoke]\n[/calls]tail'
    response = read_every_way(by, written(by, text), {})
    assert (response.content, response.named) == ("tail", [("up", {})])


@pytest.mark.clause("FRONT-2")
@pytest.mark.parametrize("by", EVERY, ids=lambda by: by.name)
def test_values_are_what_the_tag_says(by: Syntax) -> None:
    text = (
        '[calls]\n[invoke read_log">\n'
        '[parameter path" string="true"> /var/a b.log 2>&1 </[/parameter]\n'
        '[parameter tail" string="false">40[/parameter]\n'
        '[parameter rate" string="false">1.0[/parameter]\n'
        '[parameter id" string="true">007[/parameter]\n'
        '[parameter bad" string="false">x[/parameter]\n'
        '[parameter silent">12[/parameter]\n'
        "[/invoke]\n[/calls]"
    )
    tools = {"read_log": {"id": INTEGER, "bad": STRING, "silent": STRING}}
    response = read_every_way(by, written(by, text), tools)
    (call,) = response.calls
    assert call.value == {
        "path": " /var/a b.log 2>&1 </",
        "tail": 40,
        "rate": 1.0,
        "id": "007",
        "bad": "x",
        "silent": "12",
    }
    assert '"rate":1.0,' in call.arguments


@pytest.mark.parametrize("by", EVERY, ids=lambda by: by.name)
def test_block_ends_reasoning(by: Syntax) -> None:
    text = 'why[calls]\n[invoke up">\n[/invoke]\n[invoke down">\n[/invoke]\n[/calls]'
    response = read_every_way(by, written(by, text), {}, thinking=True)
    assert (response.reasoning, response.content) == ("why", "")
    assert response.named == [("up", {}), ("down", {})]


def test_spelled_markup_is_text_where_it_is_a_token() -> None:
    bar = _BAR[0] + QUOTE + _BAR[1:]
    text = f'<{bar}tool_calls>\n<{bar}invoke name="up">'
    response = read_every_way(V4, text, {})
    assert (response.content, response.calls) == (text.replace(QUOTE, ""), [])


def test_other_dialects_are_text() -> None:
    text = written(V4, '[calls]\n[invoke up">\n[/invoke]\n[/calls]')
    assert read_every_way(V41, text, {}).content == text
