"""Calls as tags around pairs of key and value."""

from __future__ import annotations

from typing import Any

import pytest

from ignition.preparation import syntaxes
from tests.frontend.response.reading import Syntax, read_every_way, syntax

_TOKENS = [
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<think>",
    "</think>",
]


def _glm(name: str, tokens: list[str], *, lines: bool = False) -> Syntax:
    tools = syntaxes.ARGUMENT_TAGS_ON_LINES if lines else syntaxes.ARGUMENT_TAGS
    return syntax(
        name,
        tool_parser="ARGUMENT_TAGS",
        tool_syntax=tools,
        reasoning_parser="THINK_TAGS",
        reasoning_syntax=syntaxes.think_tags_ended_by(tools),
        tokens=tokens,
    )


TIGHT = _glm("argument tags", _TOKENS)
LINES = _glm("argument tags on lines", _TOKENS, lines=True)
SPELLED = _glm("argument tags without tokens", [])
EVERY = [TIGHT, LINES, SPELLED]
INTEGER, STRING = {"type": "integer"}, {"type": "string"}


@pytest.mark.clause("FRONT-2")
@pytest.mark.parametrize("by", EVERY, ids=lambda by: by.name)
@pytest.mark.parametrize(
    ("text", "tools", "calls"),
    [
        (
            "<tool_call>dim<arg_key>level</arg_key>30</arg_value></tool_call>",
            {"dim": {"level": INTEGER}},
            [("dim", {"level": 30})],
        ),
        (
            "<tool_call>open_door<arg_key>id</arg_key><arg_value>7</arg_value></tool_call>",
            {"open": {}, "open_door": {"id": INTEGER}},
            [("open_door", {"id": 7})],
        ),
        (
            "<tool_call>book<arg_key>seat</arg_key><arg_value>4A</arg_value>",
            {"book": {}},
            [("book", {"seat": "4A"})],
        ),
        (
            '<tool_call>t<arg_key>q</arg_key><arg_value>{"k": 1}</arg_value></tool_call>',
            {"t": {"q": {"type": "object"}}},
            [("t", {"q": {"k": 1}})],
        ),
        (
            "<tool_call>p\n<arg_key>style</arg_key>\n<arg_value>dark blue</arg_value>\n"
            "</tool_call>",
            {"p": {"style": STRING}},
            [("p", {"style": "dark blue"})],
        ),
        ("<tool_call>stop_all</tool_call>", {}, [("stop_all", {})]),
        (
            "<tool_call>a\n</tool_call>\n<tool_call>b\\n\n</tool_call>",
            {},
            [("a", {}), ("b", {})],
        ),
        (
            "<tool_call>a\nk</arg_key><arg_value>007</arg_value></tool_call>",
            {"a": {"k": STRING}},
            [("a", {"k": "007"})],
        ),
        (
            "<tool_call>a<arg_key>k</arg_key><arg_value>[1, 2]</arg_value>"
            "<arg_key>l</arg_key><arg_value>[1, </arg_value></tool_call>",
            {},
            [("a", {"k": [1, 2], "l": "[1, "})],
        ),
    ],
    ids=["B03", "B06", "B09", "B12", "B15", "none", "lines", "no key tag", "undeclared"],
)
def test_calls(by: Syntax, text: str, tools: dict[str, Any], calls: list[Any]) -> None:
    response = read_every_way(by, text, tools)
    assert response.named == calls
    assert response.content == response.reasoning == ""
    assert all(call.complete for call in response.calls)


def test_value_ends_at_the_next_tag_that_is_a_token() -> None:
    text = (
        "<tool_call>a<arg_key>k</arg_key><arg_value>5<arg_key>l</arg_key><arg_value>6</tool_call>"
    )
    response = read_every_way(TIGHT, text, {"a": {"k": INTEGER, "l": INTEGER}})
    assert response.named == [("a", {"k": 5, "l": 6})]


@pytest.mark.parametrize("by", EVERY, ids=lambda by: by.name)
def test_call_ends_reasoning_and_a_quoted_opener_is_text(by: Syntax) -> None:
    response = read_every_way(
        by, "say `<tool_call>` or <tool_call>go</tool_call> then", {}, thinking=True
    )
    assert response.reasoning == "say `<tool_call>` or "
    assert (response.content, response.named) == ("then", [("go", {})])


def test_cut_value() -> None:
    text = "<tool_call>a<arg_key>k</arg_key><arg_value>half"
    (cut,) = read_every_way(TIGHT, text, {"a": {"k": STRING}}).calls
    assert (cut.value, cut.complete) == ({"k": "half"}, False)
    (cut,) = read_every_way(TIGHT, text, {"a": {"k": INTEGER}}).calls
    assert (cut.value, cut.complete) == ({}, False)
