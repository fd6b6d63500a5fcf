"""Which parser reads a response: from a contract's selectors and syntax to a `ResponseParser`.

The one place that knows all syntaxes. `responses` is the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from helios.contract.enums import ReasoningParser, ToolParser
from helios.contract.model import EnvelopeSyntax, FrontendContract, ToolSyntax
from helios.frontend.response.argument_tags import ArgumentTags
from helios.frontend.response.call_list import CallList
from helios.frontend.response.call_sections import CallSections
from helios.frontend.response.channels import ChannelHeaders
from helios.frontend.response.frames import FrameMachine, Headers, TextBody
from helios.frontend.response.function_tags import FunctionTags
from helios.frontend.response.invocation_tags import InvocationTags
from helios.frontend.response.marked_text import MarkerSigns, marker_signs
from helios.frontend.response.parameter_types import ToolSchemas
from helios.frontend.response.parser import Machine, ResponseParser
from helios.frontend.response.recipient_headers import RecipientHeaders
from helios.frontend.response.start import Start
from helios.frontend.response.tag_machine import CallSyntax, TagMachine, ThinkTags
from helios.frontend.response.tagged_json import BareJson, TaggedJson
from helios.frontend.response.xtml import XtmlMachine
from helios.frontend.tokenizer import Tokenizer

_CALLS: Final[dict[ToolParser, Callable[[ToolSyntax, MarkerSigns, ToolSchemas], CallSyntax]]] = {
    ToolParser.FUNCTION_TAGS: FunctionTags,
    ToolParser.ARGUMENT_TAGS: ArgumentTags,
    ToolParser.DSML: InvocationTags,
    ToolParser.TAGGED_JSON: TaggedJson,
    ToolParser.BARE_JSON: BareJson,
    ToolParser.CALL_LIST_JSON: CallList,
    ToolParser.SECTIONS: CallSections,
}
_HEADERS: Final[
    dict[
        ReasoningParser,
        Callable[[EnvelopeSyntax, ToolSyntax, MarkerSigns, ToolSchemas | None, TextBody], Headers],
    ]
] = {
    ReasoningParser.RECIPIENT_HEADERS: RecipientHeaders,
    ReasoningParser.CHANNELS: ChannelHeaders,
}


def signs_of(contract: FrontendContract, tokenizer: Tokenizer) -> MarkerSigns:
    """The signs of a core's markers in its tokenizer."""
    reasoning = contract.reasoning_syntax
    strictly = [reasoning.open, reasoning.close]
    return marker_signs(tokenizer, markers(contract), strictly=strictly)


def parser_for(
    contract: FrontendContract,
    signs: MarkerSigns,
    tools: ToolSchemas | None,
    start: Start = Start.ANSWER,
    *,
    opaque: bool = False,
) -> ResponseParser:
    """A parser of one response. `tools` is None where calls aren't looked for. An `opaque` answer
    has a form of its own, in which nothing is a marker."""
    return ResponseParser(_machine(contract, signs, tools, start, opaque=opaque))


def _machine(
    contract: FrontendContract,
    signs: MarkerSigns,
    tools: ToolSchemas | None,
    start: Start,
    *,
    opaque: bool,
) -> Machine:
    syntax = contract.tool_syntax
    if contract.tool_parser is ToolParser.XTML:
        return XtmlMachine(syntax, signs, tools, start)
    headers = _HEADERS.get(contract.reasoning_parser)
    if headers is not None:
        text = TextBody(signs.plain)
        reads = headers(contract.envelope, syntax, signs, tools, text)
        return FrameMachine(contract.envelope, signs, reads, text, start)
    calls = None
    make = _CALLS.get(contract.tool_parser)
    if tools is not None and make is not None:
        calls = make(syntax, signs, tools)
    think = None
    if contract.reasoning_parser is ReasoningParser.THINK_TAGS:
        reasoning = contract.reasoning_syntax
        think = ThinkTags(
            signs.sign(reasoning.open),
            signs.sign(reasoning.close),
            newlines=reasoning.wrapping_newlines,
            ended_by_calls=bool(reasoning.terminal_marker),
        )
    return TagMachine(signs, think, calls, thinking=start is Start.REASONING, opaque=opaque)


def markers(contract: FrontendContract) -> Iterator[str]:
    """The delimiters that a core's syntax declares."""
    tools, reasoning = contract.tool_syntax, contract.reasoning_syntax
    envelope = contract.envelope
    every = (
        tools.open,
        tools.close,
        tools.separator.strip(),
        tools.call_open,
        tools.name_close,
        tools.call_close,
        tools.argument_open,
        tools.argument_name_close,
        tools.value_open,
        tools.argument_close,
        tools.call_id_open,
        reasoning.open,
        reasoning.close,
        envelope.assistant_start,
        envelope.message_end,
        envelope.header_open,
        envelope.header_close,
        *envelope.body_closes,
        envelope.channel_open,
        envelope.format_open,
    )
    return (marker for marker in every if marker)
