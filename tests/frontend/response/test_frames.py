"""Responses of several messages with headers: recipients, and channels."""

from __future__ import annotations

from typing import Any

import pytest

from helios.frontend.response.start import Start
from ignition.preparation import syntaxes
from tests.frontend.response.reading import QUOTE, read_every_way, syntax

MUSE = syntax(
    "recipient headers",
    tool_parser="ATEM",
    tool_syntax=syntaxes.ATEM,
    reasoning_parser="RECIPIENT_HEADERS",
    envelope=syntaxes.RECIPIENT_ENVELOPE,
    tokens=["<|start|>", "<|message|>", "<|eom|>"],
)
HARMONY = syntax(
    "channels",
    tool_parser="CHANNELS",
    tool_syntax=syntaxes.CHANNEL_CALLS,
    reasoning_parser="CHANNELS",
    envelope=syntaxes.CHANNEL_ENVELOPE,
    tokens=[
        "<|start|>",
        "<|message|>",
        "<|end|>",
        "<|call|>",
        "<|return|>",
        "<|channel|>",
        "<|constrain|>",
    ],
)
EVERY = [MUSE, HARMONY]


def atem(name: str, body: str = "") -> str:
    """A block with one invocation."""
    return (
        f'<atem:function_calls>\n<atem:invoke name="{name}">\n{body}'
        "</atem:invoke>\n</atem:function_calls>"
    )


@pytest.mark.clause("FRONT-10", "FRONT-11")
@pytest.mark.parametrize(
    ("text", "reasoning", "content", "calls"),
    [
        (f" to=tap<|message|>{atem('tap')}", "", "", [("tap", {})]),
        (" to=user<|message|>Hi", "", "Hi", []),
        ("<|message|>Hi", "", "Hi", []),
        (" to=commentary<|message|>Hi", "", "Hi", []),
        (" to=self<|message|>think<|start|>assistant to=user<|message|>Yes.", "think", "Yes.", []),
        (
            " to=self<|message|>a<|eom|><|start|>assistant to=self<|message|>b",
            "a\nb",
            "",
            [],
        ),
        (f" to=tap<|message|>{atem('other')}", "", "", []),
        (f" to=tap<|message|>noise {atem('tap')}{atem('tap')}", "", "", [("tap", {})]),
        (f" to=atem:function_calls<|message|>{atem('tap')}", "", "", [("tap", {})]),
        (f" to=atem:function_calls<|message|>{atem('undeclared')}", "", "", []),
        (f" to=user<|message|>{atem('tap')}", "", atem("tap"), []),
        (" to=user<|message|>a <|start|> b", "", "a <|start|> b", []),
        (f" to=user<|message|>a <{QUOTE}|eom|> b", "", "a <|eom|> b", []),
        ("Hello there, you", "", "Hello there, you", []),
        (
            " to=self<|message|>Two.<|eom|><|start|>assistant to=geo.find<|message|>"
            + atem(
                "geo.find",
                '<atem:parameter name="city">123</atem:parameter>\n'
                '<atem:parameter name="opts">{"zoom": 3}</atem:parameter>\n',
            )
            + f"<|eom|><|start|>assistant to=tap<|message|>{atem('tap')}",
            "Two.",
            "",
            [("geo.find", {"city": "123", "opts": {"zoom": 3}}), ("tap", {})],
        ),
    ],
    ids=[
        "E01",
        "E04",
        "no recipient",
        "commentary",
        "E07",
        "lines",
        "mismatch",
        "one a message",
        "generic",
        "generic undeclared",
        "to the user",
        "start alone",
        "spelled",
        "no header",
        "parallel",
    ],
)
def test_recipients(text: str, reasoning: str, content: str, calls: list[Any]) -> None:
    tools = {"tap": {}, "geo.find": {"city": {"type": "string"}}}
    response = read_every_way(MUSE, text, tools)
    assert (response.reasoning, response.content) == (reasoning, content)
    assert response.named == calls


@pytest.mark.clause("FRONT-10")
def test_a_message_has_one_invocation() -> None:
    invocation = '<atem:invoke name="tap">\n</atem:invoke>\n'
    block = f"<atem:function_calls>\n{invocation}{invocation}</atem:function_calls>"
    assert read_every_way(MUSE, f" to=tap<|message|>{block}", {}).named == [("tap", {})]


def test_start_inside_a_message() -> None:
    for start, channel in ((Start.REASONING, "reasoning"), (Start.CONTENT, "content")):
        by = syntax(
            "continued",
            tool_parser="ATEM",
            tool_syntax=syntaxes.ATEM,
            reasoning_parser="RECIPIENT_HEADERS",
            envelope=syntaxes.RECIPIENT_ENVELOPE,
            tokens=MUSE.tokens,
            start=start,
        )
        response = read_every_way(by, " to=x more<|eom|>", {})
        assert getattr(response, channel) == " to=x more"


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.d <|constrain|>json",
        "<|channel|>commentary to=functions.d<|constrain|>json",
        " to=functions.d<|channel|>commentary",
        "<|channel|>analysis to=functions.d json",
        "<|channel|>commentary to=functions.d code",
    ],
)
def test_channel_calls(header: str) -> None:
    text = (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>"
        f'Wait.<|end|><|start|>assistant{header}<|message|>{{"a": {{"b": 1}}}}<|call|>'
    )
    response = read_every_way(HARMONY, text, {"d": {}})
    assert (response.reasoning, response.content) == ("hm", "Wait.")
    assert response.named == [("d", {"a": {"b": 1}})]


def test_unclosed_channel_call_is_reported() -> None:
    text = '<|channel|>commentary to=functions.d<|constrain|>json<|message|>{"a":{"b":1}'
    (call,) = read_every_way(HARMONY, text, {"d": {}}).calls
    assert (call.name, call.arguments, call.complete) == ("d", '{"a":{"b":1}}', False)


@pytest.mark.parametrize(
    "text",
    [
        "<|channel|>final<|message|>yes<|return|>",
        "<|channel|>odd words here<|message|>yes",
        "<|message|>yes",
        "<|channel|>commentary to=assistant<|message|>yes<|end|>",
    ],
)
def test_channel_content(text: str) -> None:
    assert read_every_way(HARMONY, text, {"d": {}}).content == "yes"


def test_calls_are_read_over_without_tools() -> None:
    text = f" to=tap<|message|>{atem('tap')}<|eom|><|start|>assistant to=user<|message|>Hi"
    response = read_every_way(MUSE, text, None)
    assert (response.content, response.calls) == ("Hi", [])
