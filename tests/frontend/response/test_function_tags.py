"""Calls as tags that carry names."""

from __future__ import annotations

from typing import Any

import pytest

from ignition.preparation import syntaxes
from tests.frontend.response.reading import QUOTE, Response, Syntax, read_every_way, syntax

QWEN = syntax(
    "qwen",
    tool_parser="FUNCTION_TAGS",
    tool_syntax=syntaxes.FUNCTION_TAGS,
    reasoning_parser="THINK_TAGS",
    reasoning_syntax=syntaxes.think_tags_ended_by(syntaxes.FUNCTION_TAGS, newlines=True),
    tokens=["<tool_call>", "</tool_call>", "<think>", "</think>"],
)
SPELLED = syntax(
    "function tags without tokens",
    tool_parser="FUNCTION_TAGS",
    tool_syntax=syntaxes.FUNCTION_TAGS,
    reasoning_parser="THINK_TAGS",
    reasoning_syntax=syntaxes.think_tags_ended_by(syntaxes.FUNCTION_TAGS, newlines=True),
)
INTEGER, BOOLEAN, STRING = {"type": "integer"}, {"type": "boolean"}, {"type": "string"}


def _call(name: str, *arguments: tuple[str, str]) -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments)
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


@pytest.mark.clause("FRONT-2")
@pytest.mark.parametrize("by", [QWEN, SPELLED], ids=lambda by: by.name)
@pytest.mark.parametrize(
    ("text", "tools", "calls"),
    [
        (
            "<tool_call>\n<function=fly>\n<parameter=to\nOslo\n</parameter>\n</function>\n"
            "</tool_call>",
            {"fly": {}},
            [("fly", {"to": "Oslo"})],
        ),
        (
            _call("roll", ("n", "6"), ("ok", "true")),
            {"roll": {"n": INTEGER, "ok": BOOLEAN}},
            [("roll", {"n": 6, "ok": True})],
        ),
        (_call("tick") + "\n" + _call("tick"), {"tick": {}}, [("tick", {}), ("tick", {})]),
        (
            _call("add", ("a", "1")) + "\n" + _call("add", ("a", "2")),
            {"add": {"a": INTEGER}},
            [("add", {"a": 1}), ("add", {"a": 2})],
        ),
        (
            _call("sh", ("cmd", 'make -s && echo "<ok>" 2>&1')),
            {"sh": {"cmd": STRING}},
            [("sh", {"cmd": 'make -s && echo "<ok>" 2>&1'})],
        ),
    ],
    ids=["A02", "A05", "A08", "A14", "A20"],
)
def test_calls(by: Syntax, text: str, tools: dict[str, Any], calls: list[Any]) -> None:
    response = read_every_way(by, text, tools)
    assert response.named == calls
    assert response.content == response.reasoning == ""


def test_quoted_opener_is_text_with_and_without_tools() -> None:
    text = "The marker `<tool_call>` starts a call. Then text."
    for tools in (None, {"tick": {}}):
        assert read_every_way(QWEN, text, tools) == Response(content=text)


def test_text_before_a_call_keeps_no_space() -> None:
    response = read_every_way(QWEN, "Let me see:\n\n" + _call("ls"), {"ls": {}})
    assert response.content == "Let me see:"
    assert response.named == [("ls", {})]


def test_blank_line_between_reasoning_and_call_is_no_content() -> None:
    response = read_every_way(QWEN, "ok\n</think>\n\n" + _call("go"), {"go": {}}, thinking=True)
    assert (response.reasoning, response.content) == ("ok", "")
    assert response.named == [("go", {})]


def test_call_ends_reasoning() -> None:
    response = read_every_way(QWEN, "ok\n" + _call("go") + "\nafter", {"go": {}}, thinking=True)
    assert (response.reasoning, response.content) == ("ok", "after")
    assert response.named == [("go", {})]


@pytest.mark.clause("FRONT-5")
def test_value_may_spell_tags() -> None:
    value = f"a</parameter> b <{QUOTE}/tool_call> c"
    response = read_every_way(QWEN, _call("say", ("text", value)), {"say": {"text": STRING}})
    assert response.named == [("say", {"text": value.replace(QUOTE, "")})]


TYPES = {"say": {"text": STRING, "n": INTEGER, "o": {"type": "object"}}}
_OPEN_VALUE = "<tool_call>\n<function=say>\n<parameter=text>\nhi"


@pytest.mark.clause("FRONT-2")
@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (_call("say", ("text", "a </tool_call> b")), [{"text": "a </tool_call> b"}]),
        (_call("say", ("text", "a\n</tool_call>\n")), [{"text": "a\n</tool_call>\n"}]),
        (_call("say", ("text", "</tool_call></tool_call>")), [{"text": "</tool_call>" * 2}]),
        (_call("say", ("o", '{"a": "</tool_call>"}')), [{"o": {"a": "</tool_call>"}}]),
        (_OPEN_VALUE + "\n</tool_call>", [{"text": "hi"}]),
        (_OPEN_VALUE + "\n</tool_call>\n ", [{"text": "hi"}]),
        (_OPEN_VALUE + "</tool_call>\n" + _call("say", ("n", "1")), [{"text": "hi"}, {"n": 1}]),
        (_OPEN_VALUE + "</tool_call> <tool_call> so", [{"text": "hi</tool_call> <tool_call> so"}]),
        ("<tool_call>\n<function=say>\n<parameter=n>\n5\n</tool_call> so", [{"n": 5}]),
    ],
    ids=["inside", "lines", "two", "JSON", "end", "spaces", "call", "text", "number"],
)  # fmt: skip
def test_the_outer_closing_token_in_a_value(text: str, calls: list[Any]) -> None:
    """It ends the value with another call or nothing after it, else the value mentions it."""
    response = read_every_way(QWEN, text, TYPES)
    assert [call.value for call in response.calls] == calls
    assert response.content == ("so" if text.endswith("5\n</tool_call> so") else "")


@pytest.mark.parametrize("cut", range(1, 75))
def test_cut_call_has_valid_arguments(cut: int) -> None:
    text = QWEN.marked(_call("say", ("text", 'h\u00e9 "l" \\ o'), ("n", "12")))[:-cut]
    response = QWEN.read(text, {"say": {"text": STRING, "n": INTEGER}})
    assert response.content == ""
    for call in response.calls:
        whole = {"text": 'h\u00e9 "l" \\ o'}
        shorter = [{"text": whole["text"][:n]} for n in range(len(whole["text"]))]
        assert call.value in ({}, *shorter, whole, {**whole, "n": 12})


@pytest.mark.clause("FRONT-5")
def test_a_later_close_is_dropped_as_its_token_and_kept_as_text() -> None:
    closes = f"r</think>Use `<{QUOTE}think>` and `<{QUOTE}/think>`.</think> More"
    response = read_every_way(QWEN, closes, None, thinking=True)
    assert response.reasoning == "r"
    assert response.content == "Use `<think>` and `</think>`. More"


def test_text_before_reasoning_and_reasoning_without_an_end() -> None:
    response = read_every_way(QWEN, "Hm. <think>r</think>A", None)
    assert (response.reasoning, response.content) == ("r", "Hm. A")
    response = read_every_way(QWEN, "still thinking", None, thinking=True)
    assert (response.reasoning, response.content) == ("still thinking", "")
