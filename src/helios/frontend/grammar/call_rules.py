"""Calls in a grammar: how each tool syntax writes them, exactly as models are trained to.

What parsers tolerate is wider. Each function gives an expression for one call of one of the tools,
without the marker that opens it; `CALLS` finds it by the contract's selector.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from helios.contract.enums import ToolParser
from helios.contract.model import ToolSyntax
from helios.dataclass import dataclass
from helios.frontend.grammar.argument_rules import (
    DEFINITIONS,
    Mentionable,
    ValueEnds,
    arguments_rule,
    object_rule,
)
from helios.frontend.grammar.lark import GrammarWriter
from helios.frontend.grammar.schemas import enforceable
from helios.frontend.tools import Tool

CallRule = Callable[[GrammarWriter, ToolSyntax, Tool, str], str]


def _function_tags(writer: GrammarWriter, syntax: ToolSyntax, tool: Tool, where: str) -> str:
    line = syntax.separator
    wrap = "\n" if syntax.wrapping_newlines else ""

    def form(name: str, is_text: bool, value: str) -> str:
        opening = f"{syntax.argument_open}{name}{syntax.argument_name_close}{wrap}"
        return f"{writer.literal(opening)} {value} {writer.literal(line)}"

    mentionable = None
    if len(writer.sign(syntax.close)) == 1 and writer.is_signed(syntax.close):
        tags = (syntax.argument_close, syntax.call_close, f"\n{syntax.argument_open}")
        mentionable = Mentionable(syntax.close, tags)
    ends = ValueEnds(f"{wrap}{syntax.argument_close}", _ends_early(writer, syntax), mentionable)
    arguments = arguments_rule(writer, tool, ends, form, where)
    opening = f"{line}{syntax.call_open}{tool.name}{syntax.name_close}{line}"
    closing = f"{syntax.call_close}{line}{syntax.close}"
    return f"{writer.literal(opening)} {arguments} {writer.literal(closing)}"


def _ends_early(writer: GrammarWriter, syntax: ToolSyntax) -> str:
    """Tags in a value of function tags that end it for the parser, as a regular expression: it
    reads calls whose closing tags are missing, or stand on no line of their own."""

    def one_of(*tags: str) -> str:
        spelled = [re.escape(tag) for tag in tags if tag and not writer.is_signed(tag)]
        return f"(?:{'|'.join(spelled)})"

    argument, closes, ends = syntax.argument_open, syntax.argument_close, syntax.call_close
    after_value = one_of(argument, ends, closes, syntax.close)
    after_call = one_of(syntax.close, syntax.open, syntax.call_open)
    space = r"[ \t\n\r]*"
    return "|".join(
        [
            f"{re.escape(closes)}{space}{after_value}",
            f"{re.escape(ends)}{space}{after_call}",
            rf"\n{re.escape(argument)}[^>\n]+[>\n]",
        ]
    )


def _argument_tags(writer: GrammarWriter, syntax: ToolSyntax, tool: Tool, where: str) -> str:
    line = syntax.separator

    def form(name: str, is_text: bool, value: str) -> str:
        opening = (
            f"{syntax.argument_open}{name}{syntax.argument_name_close}{line}{syntax.value_open}"
        )
        return f"{writer.literal(opening)} {value} {writer.literal(line)}"

    arguments = arguments_rule(writer, tool, ValueEnds(syntax.argument_close), form, where)
    opening = f"{tool.name}{line}"
    return f"{writer.literal(opening)} {arguments} {writer.literal(syntax.close)}"


def _invocation(writer: GrammarWriter, syntax: ToolSyntax, tool: Tool, where: str) -> str:
    """An invocation inside its block. Whether a value is text is said where tags have room for
    it between name and value."""
    line = syntax.separator
    says = not syntax.call_open.startswith("<atem:")

    def form(name: str, is_text: bool, value: str) -> str:
        flag = f' string="{str(is_text).lower()}"' if says else ""
        opening = (
            f"{syntax.argument_open}{name}{syntax.argument_name_close}{flag}{syntax.value_open}"
        )
        return f"{writer.literal(opening)} {value} {writer.literal(line)}"

    arguments = arguments_rule(writer, tool, ValueEnds(syntax.argument_close), form, where)
    opening = f"{syntax.call_open}{tool.name}{syntax.name_close}{line}"
    return f"{writer.literal(opening)} {arguments} {writer.literal(syntax.call_close + line)}"


def _json_call(writer: GrammarWriter, syntax: ToolSyntax, tool: Tool, where: str) -> str:
    name = syntax.name_keys[0] if syntax.name_keys else "name"
    arguments = syntax.arguments_keys[0] if syntax.arguments_keys else "arguments"
    head = f"{{{json.dumps(name)}: {json.dumps(tool.name)}, {json.dumps(arguments)}: "
    return f"{json.dumps(head)} {object_rule(writer, tool, where)} {json.dumps('}')}"


def _bare_json(writer: GrammarWriter, syntax: ToolSyntax, tool: Tool, where: str) -> str:
    """A call as one JSON value: where an answer may be JSON, too, both begin alike."""
    name, arguments = syntax.name_keys[0], syntax.arguments_keys[0]
    parameters: dict[str, Any] = {"type": "object", **tool.parameters}
    definitions = {key: parameters.pop(key) for key in DEFINITIONS if key in parameters}
    call: dict[str, Any] = {
        "type": "object",
        "properties": {name: {"const": tool.name}, arguments: parameters},
        "required": [name, arguments],
        "additionalProperties": False,
        **definitions,
    }
    return writer.json(enforceable(call, where))


def _tagged_json(writer: GrammarWriter, syntax: ToolSyntax, tool: Tool, where: str) -> str:
    wrap = "\n" if syntax.wrapping_newlines else ""
    call = _json_call(writer, syntax, tool, where)
    return f"{writer.literal(wrap)} {call} {writer.literal(wrap + syntax.close)}"


def _named_json(writer: GrammarWriter, syntax: ToolSyntax, tool: Tool, where: str) -> str:
    opening = f"{tool.name}{syntax.name_close}"
    return f"{writer.literal(opening)} {object_rule(writer, tool, where)}"


def _section(writer: GrammarWriter, syntax: ToolSyntax, tool: Tool, where: str) -> str:
    opening = writer.literal(f"{syntax.call_open}{syntax.name_prefix}{tool.name}:")
    between, closing = writer.literal(syntax.name_close), writer.literal(syntax.call_close)
    return f"{opening} /[0-9]{{1,3}}/ {between} {object_rule(writer, tool, where)} {closing}"


def _element(writer: GrammarWriter, syntax: ToolSyntax, tool: Tool, where: str) -> str:
    """A call element with all arguments as one JSON object would lose their types in later
    prompts, so it has an element for each."""
    opens, closes, sep = syntax.open, syntax.close, syntax.separator
    end = f"{closes}argument{sep}"

    def form(name: str, is_text: bool, value: str) -> str:
        key = name.replace("&", "&amp;").replace('"', "&quot;")
        kind = '"string"' if is_text else _kind(tool, name)
        head = f'{opens}argument key="{key}" type='
        return f"{writer.literal(head)} {json.dumps(kind)} {writer.literal(sep)} {value}"

    arguments = arguments_rule(writer, tool, ValueEnds(end), form, where, escapes=True)
    head = writer.literal(f'{opens}call tool="{tool.name}" index="')
    after = writer.literal(f'"{sep}')
    return f"{head} /[1-9][0-9]?/ {after} {arguments} {writer.literal(f'{closes}call{sep}')}"


def _kind(tool: Tool, name: str) -> str:
    """The type that an argument's tag declares, in quotes."""
    declared = tool.parameters["properties"][name]
    kind = declared.get("type") if isinstance(declared, dict) else None
    kind = "number" if kind == "integer" else kind
    return f'"{kind if isinstance(kind, str) else "object"}"'


CALLS: Final[dict[ToolParser, CallRule]] = {
    ToolParser.FUNCTION_TAGS: _function_tags,
    ToolParser.ARGUMENT_TAGS: _argument_tags,
    ToolParser.DSML: _invocation,
    ToolParser.ATEM: _invocation,
    ToolParser.TAGGED_JSON: _tagged_json,
    ToolParser.BARE_JSON: _bare_json,
    ToolParser.CALL_LIST_JSON: _named_json,
    ToolParser.SECTIONS: _section,
    ToolParser.XTML: _element,
}
# Syntaxes whose calls stand together in a block of their own.
_BLOCKS: Final = frozenset([ToolParser.DSML, ToolParser.SECTIONS])


@dataclass(frozen=True, slots=True)
class CallsRule:
    """Calls in a grammar: the marker that opens them, and what follows it."""

    opener: str
    rest: str

    def expression(self, writer: GrammarWriter) -> str:
        """The calls from their opener on."""
        return f"{writer.literal(self.opener)} {self.rest}" if self.opener else self.rest


def calls_rule(
    writer: GrammarWriter,
    parser: ToolParser,
    syntax: ToolSyntax,
    tools: Sequence[tuple[Tool, str]],
    *,
    parallel: bool,
) -> CallsRule:
    """One call, or several where that is allowed; each tool comes with its place in the request."""
    make = CALLS[parser]
    call = writer.choice([writer.rule(make(writer, syntax, tool, at)) for tool, at in tools])
    several = "+" if parallel else ""
    if parser is ToolParser.XTML:
        opens, closes, sep = syntax.open, syntax.close, syntax.separator
        tail = writer.literal(f"{closes}tools{sep}")
        return CallsRule(f"{opens}tools{sep}", writer.rule(f"{call}{several} {tail}"))
    if parser in _BLOCKS:
        line, tail = writer.literal(syntax.separator), writer.literal(syntax.close)
        return CallsRule(syntax.open, writer.rule(f"{line} {call}{several} {tail}"))
    opener = "" if parser is ToolParser.BARE_JSON else syntax.open
    if not parallel:
        return CallsRule(opener, call)
    between = "" if parser is ToolParser.CALL_LIST_JSON else syntax.separator
    return CallsRule(opener, writer.rule(f"{call} ({writer.literal(between + opener)} {call})*"))
