"""Which syntax of calls and of reasoning a checkpoint's core declares, by its chat template.

A template writes earlier calls and reasoning as the model was trained to write them, so what it
spells tells the syntax. `BY_TEMPLATE` and `REASONING_BY_TEMPLATE` are the tables, in the order in
which they are tried; a preparation may name an entry of `TOOLS` or `REASONING` instead. Recipes put
the outcome into their contracts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from helios.errors import ContractError
from helios.schema import contract_pb2 as pb
from ignition.preparation import chat, prefix_rules, syntaxes, tools_prologue
from ignition.preparation.checkpoints.checkpoint import TemplateTokens

AUTO: Final = "auto"
NONE: Final = "none"


@dataclass(frozen=True)
class ToolEntry:
    """A tool syntax by the name that preparations know it by. `ends_reasoning`: a call in the
    middle of reasoning is one."""

    parser: pb.ToolParser
    syntax: pb.ToolSyntax
    ends_reasoning: bool = False


@dataclass(frozen=True)
class ReasoningEntry:
    """A reasoning syntax by its name. Syntaxes of whole messages bring their envelope."""

    parser: pb.ReasoningParser
    syntax: pb.ReasoningSyntax
    envelope: pb.EnvelopeSyntax | None = None


_NOTHING: Final = pb.ToolSyntax()
_PLAIN: Final = pb.ReasoningSyntax()
TOOLS: Final[Mapping[str, ToolEntry]] = {
    NONE: ToolEntry(pb.TOOL_PARSER_NONE, _NOTHING),
    "function_tags": ToolEntry(pb.TOOL_PARSER_FUNCTION_TAGS, syntaxes.FUNCTION_TAGS, True),
    "argument_tags": ToolEntry(pb.TOOL_PARSER_ARGUMENT_TAGS, syntaxes.ARGUMENT_TAGS, True),
    "argument_tags_on_lines": ToolEntry(
        pb.TOOL_PARSER_ARGUMENT_TAGS, syntaxes.ARGUMENT_TAGS_ON_LINES, True
    ),
    "dsml_function_calls": ToolEntry(pb.TOOL_PARSER_DSML, syntaxes.DSML_FUNCTION_CALLS, True),
    "dsml_tool_calls": ToolEntry(pb.TOOL_PARSER_DSML, syntaxes.DSML_TOOL_CALLS, True),
    "dsml_calls": ToolEntry(pb.TOOL_PARSER_DSML, syntaxes.DSML_CALLS, True),
    "xtml": ToolEntry(pb.TOOL_PARSER_XTML, syntaxes.XTML),
    "atem": ToolEntry(pb.TOOL_PARSER_ATEM, syntaxes.ATEM),
    "tagged_json": ToolEntry(pb.TOOL_PARSER_TAGGED_JSON, syntaxes.TAGGED_JSON),
    "bare_json": ToolEntry(pb.TOOL_PARSER_BARE_JSON, syntaxes.BARE_JSON),
    "call_list": ToolEntry(pb.TOOL_PARSER_CALL_LIST_JSON, syntaxes.CALL_LIST),
    "channels": ToolEntry(pb.TOOL_PARSER_CHANNELS, syntaxes.CHANNEL_CALLS),
    "sections": ToolEntry(pb.TOOL_PARSER_SECTIONS, syntaxes.CALL_SECTIONS),
}
REASONING: Final[Mapping[str, ReasoningEntry]] = {
    NONE: ReasoningEntry(pb.REASONING_PARSER_NONE, _PLAIN),
    "think_tags": ReasoningEntry(pb.REASONING_PARSER_THINK_TAGS, syntaxes.THINK_TAGS_BARE),
    "think_lines": ReasoningEntry(pb.REASONING_PARSER_THINK_TAGS, syntaxes.THINK_TAGS),
    "think_brackets": ReasoningEntry(pb.REASONING_PARSER_THINK_TAGS, syntaxes.THINK_BRACKETS),
    "xtml_think": ReasoningEntry(pb.REASONING_PARSER_XTML_THINK, _PLAIN, syntaxes.XTML_ENVELOPE),
    "recipient_headers": ReasoningEntry(
        pb.REASONING_PARSER_RECIPIENT_HEADERS, _PLAIN, syntaxes.RECIPIENT_ENVELOPE
    ),
    "channels": ReasoningEntry(pb.REASONING_PARSER_CHANNELS, _PLAIN, syntaxes.CHANNEL_ENVELOPE),
}

# What a template spells, as a regular expression over its source, where a line break may be one or
# its escape; the name of the syntax that it tells.
_LINE: Final = r"(?:\n|\\n)"
BY_TEMPLATE: Final = (
    ("<atem:invoke", "atem"),
    (r"<\|channel\|>", "channels"),
    ("\uff5cDSML\uff5cfunction_calls", "dsml_function_calls"),
    ("\uff5cDSML\uff5ctool_calls", "dsml_tool_calls"),
    ("\uff5cDSML\uff5c calls", "dsml_calls"),
    (r"<\|tool_calls_section_begin\|>", "sections"),
    (rf"</arg_key>{_LINE}", "argument_tags_on_lines"),
    ("<arg_key>", "argument_tags"),
    ("<function=", "function_tags"),
    (r"\[TOOL_CALLS\]", "call_list"),
    ("<tool_call>", "tagged_json"),
    (r"<\|python_tag\|>", "bare_json"),
    (r'"parameters\\?": ', "bare_json"),
)
REASONING_BY_TEMPLATE: Final = (
    ("<atem:invoke", "recipient_headers"),
    (r"<\|channel\|>", "channels"),
    (r"\[THINK\]", "think_brackets"),
    (rf"<think>{_LINE}", "think_lines"),
    ("</think>", "think_tags"),
)


@dataclass(frozen=True)
class ChatSyntax:
    """What a core declares of its chats, and the template that it carries. `tools` and `reasoning`
    are names of entries, `boundary_roles` those at whose messages prompts can be cut for reuse."""

    tools: str
    reasoning: str
    envelope: pb.EnvelopeSyntax
    template: str | None
    boundary_roles: tuple[str, ...] = ()

    @property
    def tool_entry(self) -> ToolEntry:
        """The syntax of calls."""
        return TOOLS[self.tools]

    @property
    def reasoning_entry(self) -> ReasoningEntry:
        """The syntax of reasoning, which ends with a call where that syntax says so."""
        entry = REASONING[self.reasoning]
        if entry.parser != pb.REASONING_PARSER_THINK_TAGS or not self.tool_entry.ends_reasoning:
            return entry
        syntax = pb.ReasoningSyntax()
        syntax.CopyFrom(entry.syntax)
        syntax.terminal_marker = self.tool_entry.syntax.open
        return replace(entry, syntax=syntax)


def choose(
    template: str | None, tokens: TemplateTokens, tools: str = AUTO, reasoning: str = AUTO
) -> ChatSyntax:
    """The syntax of a checkpoint with this template, as far as it isn't named. A template that
    shows no tools gets a prologue that does where calls are tagged JSON, which is also what is
    chosen for it. Raises CheckpointError for a template that fails."""
    if template is None:
        tools, reasoning = (NONE if name == AUTO else name for name in (tools, reasoning))
        return ChatSyntax(tools, reasoning, _envelope(None, tokens, REASONING[reasoning]), None)
    reads_tools = chat.reads_tools(template, tokens)
    if tools == AUTO:
        tools = _told(template, BY_TEMPLATE) if reads_tools else "tagged_json"
    if reasoning == AUTO:
        reasoning = _told(template, REASONING_BY_TEMPLATE)
    envelope = _envelope(template, tokens, REASONING[reasoning])
    if tools == "tagged_json" and not reads_tools:
        template = tools_prologue.before(template)
    roles = prefix_rules.boundary_roles(template, tokens)
    return ChatSyntax(tools, reasoning, envelope, template, roles)


def check_names(tools: str, reasoning: str) -> None:
    """Refuses names of nothing. Raises ContractError naming the command's option."""
    for option, name, known in (
        ("--tools", tools, list(TOOLS)),
        ("--reasoning", reasoning, list(REASONING)),
    ):
        if name != AUTO and name not in known:
            raise ContractError(
                f"there is no syntax {name!r}",
                where=option,
                remedy=f"Choose {AUTO}, which goes by the template, or of {', '.join(known)}",
            )


def _told(template: str, table: tuple[tuple[str, str], ...]) -> str:
    """The first syntax whose spelling the template has."""
    return next((name for spelled, name in table if re.search(spelled, template)), NONE)


def _envelope(
    template: str | None, tokens: TemplateTokens, reasoning: ReasoningEntry
) -> pb.EnvelopeSyntax:
    """What opens an assistant's message and ends one."""
    return reasoning.envelope or chat.envelope(template, tokens)
