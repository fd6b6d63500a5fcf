"""Selectors of frontends with their syntax: what goes together, and what may not be missing."""

from __future__ import annotations

from itertools import product

import pytest

from helios.contract import decode
from helios.contract.enums import ReasoningParser, ToolParser
from helios.errors import ContractError
from helios.schema import contract_pb2 as pb
from ignition.preparation import syntaxes
from tests.contract.sample import sample_contract

TOOLS: dict[str, pb.ToolSyntax] = {
    "NONE": pb.ToolSyntax(),
    "FUNCTION_TAGS": syntaxes.FUNCTION_TAGS,
    "ARGUMENT_TAGS": syntaxes.ARGUMENT_TAGS,
    "DSML": syntaxes.DSML_CALLS,
    "XTML": syntaxes.XTML,
    "ATEM": syntaxes.ATEM,
    "TAGGED_JSON": syntaxes.TAGGED_JSON,
    "BARE_JSON": syntaxes.BARE_JSON,
    "CALL_LIST_JSON": syntaxes.CALL_LIST,
    "CHANNELS": syntaxes.CHANNEL_CALLS,
    "SECTIONS": syntaxes.CALL_SECTIONS,
}
REASONING: dict[str, pb.ReasoningSyntax] = {
    "NONE": pb.ReasoningSyntax(),
    "THINK_TAGS": syntaxes.THINK_TAGS,
    "XTML_THINK": pb.ReasoningSyntax(),
    "RECIPIENT_HEADERS": pb.ReasoningSyntax(),
    "CHANNELS": pb.ReasoningSyntax(),
}
ENVELOPES = {
    "RECIPIENT_HEADERS": syntaxes.RECIPIENT_ENVELOPE,
    "CHANNELS": syntaxes.CHANNEL_ENVELOPE,
}
# What comes with nothing else, and with what it comes.
PAIRED = {("XTML_THINK", "XTML"), ("RECIPIENT_HEADERS", "ATEM"), ("CHANNELS", "CHANNELS")}
# Delimiters that a parser can do without.
OPTIONAL = {"separator", "wrapping_newlines", "name_prefix", "call_id_open", "value_open"}


def writes(tools: str, reasoning: str) -> pb.ServingContract:
    """A contract with these selectors and their syntax."""
    message = sample_contract()
    frontend = message.model.frontend
    frontend.tool_parser = pb.ToolParser.Value(f"TOOL_PARSER_{tools}")
    frontend.reasoning_parser = pb.ReasoningParser.Value(f"REASONING_PARSER_{reasoning}")
    frontend.tool_syntax.CopyFrom(TOOLS[tools])
    frontend.reasoning_syntax.CopyFrom(REASONING[reasoning])
    frontend.envelope.CopyFrom(ENVELOPES.get(reasoning, pb.EnvelopeSyntax()))
    return message


def test_every_parser_is_here() -> None:
    assert set(TOOLS) == {parser.name for parser in ToolParser}
    assert set(REASONING) == {parser.name for parser in ReasoningParser}


@pytest.mark.clause("FRONT-1", "FRONT-3", "FRONT-10")
@pytest.mark.parametrize(("reasoning", "tools"), list(product(REASONING, TOOLS)))
def test_selectors_are_independent_but_for_those_of_one_parser(reasoning: str, tools: str) -> None:
    tied = {selector for pair in PAIRED for selector in pair} - {"XTML"}
    good = (reasoning, tools) in PAIRED or tied.isdisjoint((reasoning, tools))
    message = writes(tools, reasoning)
    if good:
        frontend = decode(message).model.frontend
        assert (frontend.tool_parser.name, frontend.reasoning_parser.name) == (tools, reasoning)
        assert frontend.tool_syntax.wrapping_newlines == TOOLS[tools].wrapping_newlines
    else:
        with pytest.raises(ContractError, match=r"model\.frontend\.\w+_parser: \w+ requires"):
            decode(message)


def _needed() -> list[tuple[str, str, str, str]]:
    """Tool parser, reasoning parser, and a delimiter of theirs that may not be missing."""
    found = []
    for tools, syntax in TOOLS.items():
        reasoning = {"ATEM": "RECIPIENT_HEADERS", "CHANNELS": "CHANNELS"}.get(tools, "NONE")
        optional = OPTIONAL - ({"value_open"} if tools not in ("FUNCTION_TAGS",) else set())
        if tools == "XTML":
            optional -= {"separator"}
        if tools == "BARE_JSON":
            optional |= {"open"}
        found += [
            (tools, reasoning, "tool_syntax", field.name)
            for field, _ in syntax.ListFields()
            if field.name not in optional
        ]
    for reasoning, envelope in ENVELOPES.items():
        tools = "ATEM" if reasoning == "RECIPIENT_HEADERS" else "CHANNELS"
        found += [
            (tools, reasoning, "envelope", field.name)
            for field, _ in envelope.ListFields()
            if field.name != "generic_recipients"
        ]
    found += [("NONE", "THINK_TAGS", "reasoning_syntax", field) for field in ("open", "close")]
    return found


@pytest.mark.clause("FRONT-1")
@pytest.mark.parametrize(("tools", "reasoning", "part", "field"), _needed())
def test_a_delimiter_that_a_parser_needs_is_there(
    tools: str, reasoning: str, part: str, field: str
) -> None:
    message = writes(tools, reasoning)
    getattr(message.model.frontend, part).ClearField(field)
    with pytest.raises(ContractError, match="is missing") as refused:
        decode(message)
    assert refused.value.where == f"model.frontend.{part}.{field}"


@pytest.mark.clause("FRONT-2")
@pytest.mark.parametrize("reasoning", ["NONE", "THINK_TAGS"])
@pytest.mark.parametrize("tools", ["FUNCTION_TAGS", "ARGUMENT_TAGS", "DSML"])
def test_think_tags_come_with_any_tags_or_without(tools: str, reasoning: str) -> None:
    assert decode(writes(tools, reasoning)).model.frontend.reasoning_parser.name == reasoning


@pytest.mark.clause("FRONT-4")
@pytest.mark.parametrize(("tools", "marker", "good"), [
    ("FUNCTION_TAGS", "<tool_call>", True),
    ("FUNCTION_TAGS", "</tool_call>", False),
    ("FUNCTION_TAGS", "<function=", False),
    ("DSML", "<tool_call>", False),
    ("NONE", "<tool_call>", False),
])  # fmt: skip
def test_what_ends_reasoning_opens_calls(tools: str, marker: str, good: bool) -> None:
    message = writes(tools, "THINK_TAGS")
    message.model.frontend.reasoning_syntax.terminal_marker = marker
    if good:
        assert decode(message).model.frontend.reasoning_syntax.terminal_marker == marker
        return
    with pytest.raises(ContractError, match="is not the tool syntax's opener") as refused:
        decode(message)
    assert refused.value.where == "model.frontend.reasoning_syntax.terminal_marker"
