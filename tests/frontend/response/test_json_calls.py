"""Calls as JSON: in tags, bare, in a list, in sections."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.frontend.response.json_stream import JsonStream
from ignition.preparation import syntaxes
from tests.frontend.response.reading import read_every_way, syntax

HERMES = syntax(
    "tagged JSON",
    tool_parser="TAGGED_JSON",
    tool_syntax=syntaxes.TAGGED_JSON,
    reasoning_parser="THINK_TAGS",
    reasoning_syntax=syntaxes.THINK_TAGS,
    tokens=["<tool_call>", "</tool_call>", "<think>", "</think>"],
)
SPELLED = syntax(
    "tagged JSON without tokens", tool_parser="TAGGED_JSON", tool_syntax=syntaxes.TAGGED_JSON
)
LLAMA = syntax(
    "bare JSON",
    tool_parser="BARE_JSON",
    tool_syntax=syntaxes.BARE_JSON,
    tokens=["<|python_tag|>"],
)
MISTRAL = syntax(
    "call list",
    tool_parser="CALL_LIST_JSON",
    tool_syntax=syntaxes.CALL_LIST,
    reasoning_parser="THINK_TAGS",
    reasoning_syntax=syntaxes.THINK_BRACKETS,
    tokens=["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"],
)
KIMI = syntax(
    "call sections",
    tool_parser="SECTIONS",
    tool_syntax=syntaxes.CALL_SECTIONS,
    reasoning_parser="THINK_TAGS",
    reasoning_syntax=syntaxes.THINK_TAGS_BARE,
    tokens=[
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<think>",
        "</think>",
    ],
)
EVERY = [HERMES, SPELLED, LLAMA, MISTRAL, KIMI]


@pytest.mark.parametrize("by", [HERMES, SPELLED], ids=lambda by: by.name)
@pytest.mark.parametrize(
    ("text", "calls", "content"),
    [
        (
            '<tool_call>\n{"name": "sh", "arguments": {"cmd": "mkdir p/{x,y}"}}\n</tool_call>',
            [("sh", {"cmd": "mkdir p/{x,y}"})],
            "",
        ),
        (
            '<tool_call>\n{"name": "ins", "arguments": {"rows": [{"k": "v"}]}}\n</tool_call>',
            [("ins", {"rows": [{"k": "v"}]})],
            "",
        ),
        ("Just text.", [], "Just text."),
        (
            'a <tool_call>{"arguments": {"name": 1, "arguments": -2}, "name": "x"}</tool_call> b',
            [("x", {"name": 1, "arguments": -2})],
            "ab",
        ),
        (
            '<tool_call>{"name": "x", "arguments": "{\\"a\\": \\"}\\"}"}{"name": "y"}',
            [("x", {"a": "}"}), ("y", {})],
            "",
        ),
        ('<tool_call>{"name": "x", "arguments": {}}}</tool_call>.', [("x", {})], "."),
        ('<tool_call>{"x": 1}</tool_call>', [], '<tool_call>{"x": 1}</tool_call>'),
        ("say <tool_call> {", [], "say <tool_call> {"),
        ('<tool_call>{"name": "x", "arguments": null}</tool_call>', [("x", {})], ""),
    ],
    ids=["G02", "G05", "G17", "order", "text", "brace", "none", "quoted", "null"],
)
def test_tagged(by: Any, text: str, calls: list[Any], content: str) -> None:
    response = read_every_way(by, text, {"sh": {}, "ins": {}})
    assert (response.named, response.content) == (calls, content)


@pytest.mark.parametrize(
    ("text", "calls", "content"),
    [
        ('{"name": "tick", "parameters": {}} done', [("tick", {})], "done"),
        (
            '{"type": "function", "name": "tick", "parameters": {"z": 1}}',
            [("tick", {"z": 1})],
            "",
        ),
        ('{"name": "other", "parameters": {}}', [], '{"name": "other", "parameters": {}}'),
        ('{"name": "tick", "color": 1}', [("tick", {})], "1}"),
        ('{"color": 1, "name": "tick"}', [], '{"color": 1, "name": "tick"}'),
        ('see {"name": "tick"}', [], 'see {"name": "tick"}'),
        ('see <|python_tag|>{"name": "tick"}', [("tick", {})], "see"),
        (
            '{"name": "tick", "parameters": {}}; {"name": "tick", "arguments": {"a": 1}}',
            [("tick", {}), ("tick", {"a": 1})],
            "",
        ),
    ],
    ids=["G08", "G14", "undeclared", "late key", "other key", "later", "python tag", "two"],
)
def test_bare(text: str, calls: list[Any], content: str) -> None:
    response = read_every_way(LLAMA, text, {"tick": {}})
    assert (response.named, response.content) == (calls, content)


@pytest.mark.parametrize(
    ("text", "calls", "content"),
    [
        (
            '[TOOL_CALLS]pay[ARGS]{"id": 1}[TOOL_CALLS]tick[ARGS]{}',
            [("pay", {"id": 1}), ("tick", {})],
            "",
        ),
        (
            'a[TOOL_CALLS] [{"name": "pay", "arguments": {"id": 1}}, {"name": "tick"}] b',
            [("pay", {"id": 1}), ("tick", {})],
            "ab",
        ),
        ("[TOOL_CALLS]tick[CALL_ID]a1b2c3d4e[ARGS]{}", [("tick", {})], ""),
        ("[TOOL_CALLS] is a marker", [], "[TOOL_CALLS] is a marker"),
    ],
    ids=["G11", "list", "id", "quoted"],
)
def test_list(text: str, calls: list[Any], content: str) -> None:
    response = read_every_way(MISTRAL, text, {})
    assert (response.named, response.content) == (calls, content)


def test_sections() -> None:
    text = (
        "hm</think>So.<|tool_calls_section_begin|> <|tool_call_begin|>functions.w:0"
        '<|tool_call_argument_begin|>{"n": "5"}<|tool_call_end|>noise<|tool_call_begin|>w2:1'
        "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>after"
    )
    response = read_every_way(KIMI, text, {"w": {"n": {"type": "integer"}}}, thinking=True)
    assert response.reasoning == "hm"
    assert response.content == "So.after"
    assert response.named == [("w", {"n": "5"}), ("w2", {})]
    assert [call.call_id for call in response.calls] == ["functions.w:0", "w2:1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": {"b": 1}', '{"a": {"b": 1}}'),
        ('{"a": "x', '{"a": "x"}'),
        ('{"a": "x\\', '{"a": "x\\\\"}'),
        ('{"a": "\\ud83d', '{"a": "\\ufffd"}'),
        ('{"a": 1', '{"a": 1}'),
        ('{"a": 1, ', '{"a": 1}'),
        ('{"a": 1, "b": ', '{"a": 1}'),
        ('{"a": tru', "{}"),
        ('{"a": [1, {"b"', '{"a": [1, {}]}'),
        ('{"a": "C:\\dir\nx"}', '{"a": "C:\\\\dir\\nx"}'),
        ('{"a": [1, ], }', '{"a": [1]}'),
        ("{'a': 1}", "{}"),
        ('{"a" 1}', "{}"),
    ],
)
def test_what_is_copied_can_be_completed(text: str, expected: str) -> None:
    assert json.loads(_copied(text)) == json.loads(expected)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=12,
    ),
    st.booleans(),
    st.data(),
)
def test_valid_json_is_copied_as_it_is(value: Any, ascii_only: bool, data: st.DataObject) -> None:
    text = json.dumps({"v": value}, ensure_ascii=ascii_only)
    copied = _copied(text)
    assert json.loads(copied) == json.loads(text)
    cut = data.draw(st.integers(1, len(text)))
    json.loads(_copied(text[:cut]))


def _copied(text: str) -> str:
    """The text copied character by character, and completed."""
    stream, out, rest = JsonStream(str), "", ""
    for index, character in enumerate(text):
        rest += character
        copied, used = stream.push(rest, final=index == len(text) - 1)
        out += copied
        rest = rest[used:]
        json.loads(out + stream.completion() or "null")
    return out + stream.completion()
