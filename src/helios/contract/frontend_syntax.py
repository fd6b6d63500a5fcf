"""What a frontend's selectors need of each other and of the syntax that comes with them.

The four selectors are chosen apart; here is what doesn't go together, and which delimiters a parser
can't do without. `frontend_decoder` asks before a contract is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from helios.contract.enums import ImageLayout, ImagePreparation, ReasoningParser, ToolParser
from helios.contract.fields import join, refuse
from helios.contract.model import FrontendContract

_TAGGED: Final = ("open", "close")
_NAMED_TAGS: Final = (
    *_TAGGED,
    "call_open",
    "name_close",
    "call_close",
    "argument_open",
    "argument_name_close",
    "argument_close",
)
_INVOCATIONS: Final = (*_NAMED_TAGS, "value_open")
_TOOL_FIELDS: Final[Mapping[ToolParser, Sequence[str]]] = {
    ToolParser.FUNCTION_TAGS: _NAMED_TAGS,
    ToolParser.ARGUMENT_TAGS: (
        *_TAGGED,
        "argument_open",
        "argument_name_close",
        "value_open",
        "argument_close",
    ),
    ToolParser.DSML: _INVOCATIONS,
    ToolParser.XTML: (*_TAGGED, "separator"),
    ToolParser.ATEM: _INVOCATIONS,
    ToolParser.TAGGED_JSON: _TAGGED,
    ToolParser.BARE_JSON: ("name_keys", "arguments_keys"),
    ToolParser.CALL_LIST_JSON: ("open", "name_close"),
    ToolParser.SECTIONS: (*_TAGGED, "call_open", "name_close", "call_close"),
}
_HEADERS: Final = ("assistant_start", "message_end", "header_open", "header_close", "body_closes")
_ENVELOPE_FIELDS: Final[Mapping[ReasoningParser, Sequence[str]]] = {
    ReasoningParser.RECIPIENT_HEADERS: _HEADERS,
    ReasoningParser.CHANNELS: (*_HEADERS, "channel_open", "format_open"),
}
# Reasoning and tools that are read by one parser, so neither comes with another.
_PAIRED: Final = {
    ReasoningParser.RECIPIENT_HEADERS: ToolParser.ATEM,
    ReasoningParser.CHANNELS: ToolParser.CHANNELS,
}


def check_frontend(frontend: FrontendContract, where: str) -> None:
    """Raises ContractError naming the selector or the delimiter at fault."""
    _check_pairs(frontend, where)
    _check_images(frontend, where)
    tools, reasoning = frontend.tool_parser, frontend.reasoning_parser
    needed = (
        ("tool_syntax", tools.name, _TOOL_FIELDS.get(tools, ())),
        ("reasoning_syntax", reasoning.name, _reasoning_fields(reasoning)),
        ("envelope", reasoning.name, _ENVELOPE_FIELDS.get(reasoning, ())),
    )
    for part, parser, fields in needed:
        for field in fields:
            if not getattr(getattr(frontend, part), field):
                refuse(join(join(where, part), field), f"is missing, and {parser} needs it")


def _reasoning_fields(reasoning: ReasoningParser) -> Sequence[str]:
    return _TAGGED if reasoning is ReasoningParser.THINK_TAGS else ()


def _check_pairs(frontend: FrontendContract, where: str) -> None:
    """Selectors that only work together."""
    tools, reasoning = frontend.tool_parser, frontend.reasoning_parser
    path = join(where, "reasoning_parser")
    if reasoning is ReasoningParser.XTML_THINK and tools is not ToolParser.XTML:
        refuse(path, f"XTML_THINK requires the tool parser XTML, not {tools.name}")
    for its_reasoning, its_tools in _PAIRED.items():
        if reasoning is its_reasoning and tools is not its_tools:
            refuse(
                path,
                f"{reasoning.name} requires the tool parser {its_tools.name}, not {tools.name}",
            )
        if tools is its_tools and reasoning is not its_reasoning:
            refuse(
                join(where, "tool_parser"),
                f"{tools.name} requires the reasoning parser {its_reasoning.name},"
                f" not {reasoning.name}",
            )
    marker = frontend.reasoning_syntax.terminal_marker
    if marker and marker != frontend.tool_syntax.open:
        refuse(
            join(where, "reasoning_syntax.terminal_marker"),
            f"{marker!r} is not the tool syntax's opener {frontend.tool_syntax.open!r}",
        )


def _check_images(frontend: FrontendContract, where: str) -> None:
    prepares = frontend.image_preparation is not ImagePreparation.NONE
    if prepares != (frontend.image_layout is not ImageLayout.NONE):
        refuse(join(where, "image_layout"), "image preparation and layout go together")
    if prepares and frontend.image_settings is None:
        refuse(join(where, "image_settings"), "is missing, but images are prepared")
