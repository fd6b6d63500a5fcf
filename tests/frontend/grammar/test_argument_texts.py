"""Texts as arguments that are tags between tags: a grammar allows none that its parser would read
as less, or as another call."""

from __future__ import annotations

from typing import Any

import pytest
from llguidance import LLMatcher

from helios.errors import RequestError
from helios.frontend.grammar.constraint import Constraint
from helios.frontend.tools import Calling, Tool, Tools
from tests.frontend.grammar.test_envelopes import CALLING, Core
from tests.frontend.response.reading import Syntax

FUNCTION_TAGS = (
    "<tool_call>\n<function=t>\n<parameter=v>\n",
    "\n</parameter>\n<parameter=n>\n5\n</parameter>\n</function>\n</tool_call>",
)
ATEM = (
    ' to=t<|message|><atem:function_calls>\n<atem:invoke name="t">\n<atem:parameter name="v">',
    '</atem:parameter>\n<atem:parameter name="n">5</atem:parameter>\n</atem:invoke>\n'
    "</atem:function_calls>",
)
WRITTEN = {
    "qwen": FUNCTION_TAGS,
    "function tags without tokens": FUNCTION_TAGS,
    "recipient headers": ATEM,
}
CORES = {by.name: Core(by) for by in CALLING if by.name in WRITTEN}


def tool(value: dict[str, Any]) -> Tool:
    schema = {
        "type": "object",
        "properties": {"v": value, "n": {"type": "integer"}},
        "required": ["v", "n"],
        "additionalProperties": False,
    }
    return Tool("t", schema)


def allows(name: str, value: dict[str, Any], text: str) -> bool:
    """Whether a call with the text as its argument may be written; it reads so, if it may."""
    core, (before, after) = CORES[name], WRITTEN[name]
    tools = Tools((tool(value),), Calling.REQUIRED, parallel=False)
    grammar = core.compiler.compile(Constraint(None, tools), "")
    tokens = core.tokenizer.encode(before + text + after)
    matcher = LLMatcher(core.vocabulary, grammar)
    allowed = bool(matcher.validate_tokens([*tokens, core.eos]) == len(tokens) + 1)
    if allowed:
        (call,) = core.read(tokens, tools.declared).calls
        assert call.value == {"v": text, "n": 5}
    return allowed


@pytest.mark.clause("FRONT-14")
@pytest.mark.parametrize("name", ["qwen", "function tags without tokens"])
@pytest.mark.parametrize(
    "text",
    [
        "a</parameter>",
        "a</parameter>\n</function>",
        "a</parameter> <parameter=n>\n7",
        "</parameter></parameter>b",
        "a</function><function=t>",
        "a\n<parameter=other>\n7",
    ],
)
def test_free_text_holds_nothing_that_ends_it_early(name: str, text: str) -> None:
    assert not allows(name, {"type": "string"}, text)


@pytest.mark.parametrize("name", ["qwen", "function tags without tokens"])
@pytest.mark.parametrize(
    "text",
    ["", "a </parameter> b", "<parameter=x>", "</function> x", "<b>\n\n</b>", "\n<parameter"],
)
def test_free_text_may_mention_tags(name: str, text: str) -> None:
    assert allows(name, {"type": "string"}, text)


@pytest.mark.parametrize("name", sorted(WRITTEN))
@pytest.mark.parametrize(
    "value",
    [
        {"type": "string", "minLength": 12},
        {"type": "string", "minLength": 12, "maxLength": 400},
        {"type": "string", "pattern": "^[^x]*x$"},
    ],
)
def test_a_closing_tag_ends_texts_that_lack_something(name: str, value: dict[str, Any]) -> None:
    # Where it came too early the parser would read the shorter text.
    early = WRITTEN[name][1].partition("\n<" if name == "recipient headers" else ">")[0]
    close = early if name == "recipient headers" else early + ">"
    assert not allows(name, value, f"Oslo{close}\n and a longer one, x")
    assert allows(name, value, "Oslo and a longer one, x")


@pytest.mark.parametrize("name", sorted(WRITTEN))
@pytest.mark.parametrize(
    ("least", "most"), [(0, 0), (0, 3), (1, None), (2, 2), (3, 5), (14, 20), (300, 4000)]
)
def test_lengths(name: str, least: int, most: int | None) -> None:
    bounds = {"minLength": least} | ({} if most is None else {"maxLength": most})
    for length in {0, 1, least - 1, least, least + 1, most or 9, (most or 9) + 1} - {-1}:
        fits = least <= length and (most is None or length <= most)
        assert allows(name, {"type": "string", **bounds}, "\u00e9" * length) is fits, length


def test_lengths_that_no_text_has_are_refused() -> None:
    with pytest.raises(RequestError, match=r"properties\.v") as refused:
        allows("qwen", {"type": "string", "minLength": 3, "maxLength": 2}, "")
    assert "minLength is more than maxLength" in str(refused.value)


@pytest.mark.parametrize("option", ["null", "NULL"])
def test_options_that_would_be_read_as_another_type_are_refused(option: str) -> None:
    value = {"type": ["string", "null"], "enum": ["a", option]}
    with pytest.raises(RequestError, match=r"properties\.v") as refused:
        allows("qwen", value, "a")
    assert "would be read as a value of another type" in str(refused.value)


def test_options_with_tags_in_them_are_refused() -> None:
    with pytest.raises(RequestError, match=r"properties\.v"):
        allows("qwen", {"enum": ["a</function><function=t>"]}, "")


@pytest.mark.clause("FRONT-14")
@pytest.mark.parametrize("by", CALLING, ids=lambda by: by.name)
def test_structures_are_read_whole_whatever_their_strings_spell(by: Syntax) -> None:
    keyed = {
        "type": "object",
        "properties": {"k": {"type": "string"}},
        "required": ["k"],
        "additionalProperties": False,
    }
    tools = Tools((tool(keyed),), Calling.REQUIRED, parallel=False)
    core = Core(by)
    for response in core.answers(Constraint(None, tools), count=8):
        (call,) = response.calls
        assert set(call.value["v"]) == {"k"}
        assert isinstance(call.value["n"], int)


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_numbers_beyond_a_double_are_read_as_they_are_written(name: str) -> None:
    core, (before, after) = CORES[name], WRITTEN[name]
    declared = tool({"type": "array", "items": {"type": "number"}})
    tools = Tools((declared,), Calling.REQUIRED, parallel=False)
    tokens = core.tokenizer.encode(f"{before}[9e999, 1.50]{after}")
    assert core.accepts(Constraint(None, tools), tokens)
    (call,) = core.read(tokens, (declared,)).calls
    assert call.arguments == '{"v":[9e999, 1.50],"n":5}'
