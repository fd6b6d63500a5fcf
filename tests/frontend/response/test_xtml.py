"""Responses of nested elements between control tokens."""

from __future__ import annotations

import re

import pytest

from helios.frontend.response.start import Start
from ignition.preparation import syntaxes
from tests.frontend.response.reading import QUOTE, Syntax, read_every_way, syntax

_TOKENS = ["<|open|>", "<|close|>", "<|sep|>"]


def _xtml(name: str, tokens: list[str]) -> Syntax:
    return syntax(
        name,
        tool_parser="XTML",
        tool_syntax=syntaxes.XTML,
        reasoning_parser="XTML_THINK",
        tokens=tokens,
        start=Start.CONTENT,
    )


XTML = _xtml("XTML", _TOKENS)
SPELLED = _xtml("XTML without tokens", [])
EVERY = [XTML, SPELLED]


def written(text: str) -> str:
    """`[x a]` for an opening tag, `[/x]` for a closing one; the last one may be cut."""

    def tag(found: re.Match[str]) -> str:
        slash, name, end = found.groups()
        return ("<|close|>" if slash else "<|open|>") + name + ("<|sep|>" if end else "")

    return re.sub(r"\[(/?)((?:[a-z][^\]\[]*)?)(\]|$)", tag, text)


@pytest.mark.clause("FRONT-3")
@pytest.mark.parametrize("by", EVERY, ids=lambda by: by.name)
def test_whole_response(by: Syntax) -> None:
    text = written(
        "check <it>[/think]noise[response]Looking.[/response] [tools]\n"
        '[call tool="stock" index="7"]'
        '[argument key="sku" type="string"]A "7" & <b>[/argument]'
        '[argument key="qty" type="number"]3[/argument]'
        '[argument key="say &quot;&amp;quot;" type="object"]{"a": [1]}[/argument]'
        '[argument key="bad" type="number"]three[/argument]'
        '[argument key="x"]12[/argument][/call] '
        '[call index="2"][/call][call tool="stop" index="2"][/call]'
        '[call tool="raw"][json type="object"]{"k": {"l": 1}}[/json][/call][/tools]'
        '[call tool="rm" index="2"][/call][/message]over'
    )
    response = read_every_way(by, text, {}, thinking=True)
    assert (response.reasoning, response.content) == ("check <it>", "Looking.")
    assert response.named == [
        (
            "stock",
            {
                "sku": 'A "7" & <b>',
                "qty": 3,
                'say "&quot;': {"a": [1]},
                "bad": "three",
                "x": "12",
            },
        ),
        ("stop", {}),
        ("raw", {"k": {"l": 1}}),
    ]


@pytest.mark.parametrize("by", EVERY, ids=lambda by: by.name)
@pytest.mark.parametrize("end", ["[/message]", "[/response][/message]", "[/mess", "[", ""])
def test_end_of_the_message_is_no_content(by: Syntax, end: str) -> None:
    response = read_every_way(by, "Fine." + written(end), {})
    assert (response.content, response.calls) == ("Fine.", [])


@pytest.mark.parametrize("by", EVERY, ids=lambda by: by.name)
def test_calls_after_the_tools_element_are_none(by: Syntax) -> None:
    text = written(
        '[tools][call tool="a" index="1"][/call][/tools][call tool="rm" index="2"][/call][/message]'
    )
    assert read_every_way(by, text, {}).named == [("a", {})]


@pytest.mark.parametrize("by", EVERY, ids=lambda by: by.name)
@pytest.mark.parametrize("ends", ["[response]", "[/think][response]"])
def test_reasoning_may_lack_its_end(by: Syntax, ends: str) -> None:
    response = read_every_way(by, written(f"why{ends}yes"), None, thinking=True)
    assert (response.reasoning, response.content) == ("why", "yes")


def test_quoted_markup_is_text() -> None:
    quoted = f"<{QUOTE}|close|>message<{QUOTE}|sep|>"
    response = read_every_way(XTML, f"a{quoted}b", {})
    assert response.content == f"a{quoted}b".replace(QUOTE, "")


@pytest.mark.parametrize("by", EVERY, ids=lambda by: by.name)
def test_cut_calls(by: Syntax) -> None:
    text = written('[tools][call tool="a"][argument key="k" type="string"]half')
    (call,) = read_every_way(by, text, {}).calls
    assert (call.value, call.complete) == ({"k": "half"}, False)
    text = written('[tools][call tool="a"][json type="object"]{"a": [1, ')
    (call,) = read_every_way(by, text, {}).calls
    assert (call.value, call.complete) == ({"a": [1]}, False)
