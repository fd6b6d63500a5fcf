"""Which parser reads a response: from a contract's selectors and syntax to a `ResponseParser`.

The one place that knows all syntaxes. `ResponseReading` is made once a core; it makes a parser a
response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from helios.contract.enums import ReasoningParser, ToolParser
from helios.contract.model import FrontendContract, ToolSyntax
from helios.frontend.response.argument_tags import ArgumentTags
from helios.frontend.response.call_list import CallList
from helios.frontend.response.call_sections import CallSections
from helios.frontend.response.function_tags import FunctionTags
from helios.frontend.response.invocation_tags import InvocationTags
from helios.frontend.response.marked_text import MarkerSigns, marker_signs
from helios.frontend.response.parameter_types import ToolSchemas
from helios.frontend.response.parser import Machine, ResponseParser
from helios.frontend.response.tag_machine import CallSyntax, TagMachine, ThinkTags
from helios.frontend.response.tagged_json import BareJson, TaggedJson
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


class ResponseReading:
    """How a core's responses are read. `signs` is what its markers look like to parsers."""

    def __init__(self, contract: FrontendContract, signs: MarkerSigns) -> None:
        self._contract = contract
        self.signs = signs

    @staticmethod
    def of(contract: FrontendContract, tokenizer: Tokenizer) -> ResponseReading:
        """The reading of a core with this tokenizer."""
        reasoning = contract.reasoning_syntax
        strictly = [reasoning.open, reasoning.close]
        return ResponseReading(
            contract, marker_signs(tokenizer, markers(contract), strictly=strictly)
        )

    def parser(self, tools: ToolSchemas | None, *, thinking: bool) -> ResponseParser:
        """A parser of one response. `tools` is None where calls aren't looked for; `thinking`
        says that the prompt ended inside reasoning."""
        return ResponseParser(self._machine(tools, thinking=thinking))

    def _machine(self, tools: ToolSchemas | None, *, thinking: bool) -> Machine:
        contract, signs = self._contract, self.signs
        calls = None
        make = _CALLS.get(contract.tool_parser)
        if tools is not None and make is not None:
            calls = make(contract.tool_syntax, signs, tools)
        think = None
        if contract.reasoning_parser is ReasoningParser.THINK_TAGS:
            syntax = contract.reasoning_syntax
            think = ThinkTags(
                signs.sign(syntax.open),
                signs.sign(syntax.close),
                newlines=syntax.wrapping_newlines,
                ended_by_calls=bool(syntax.terminal_marker),
            )
        return TagMachine(signs, think, calls, thinking=thinking)


def markers(contract: FrontendContract) -> Iterator[str]:
    """The delimiters that a core's syntax declares."""
    tools, reasoning = contract.tool_syntax, contract.reasoning_syntax
    every = (
        tools.open,
        tools.close,
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
    )
    return (marker for marker in every if marker)
