"""Parsed parts of a response as fields of a chat answer: reasoning, content, calls.

A call's id is the model's own where its syntax has ids, else one is made when it begins.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import field

from msgspec import UNSET, UnsetType

from helios.dataclass import dataclass
from helios.frontend.response.deltas import CallArguments, CallBegin, Content, Delta, Reasoning
from helios.server.answers import AssistantMessage, ChatDelta
from helios.server.tool_bodies import CalledFunction, ToolCall, ToolCallDelta


def call_id(begin: CallBegin) -> str:
    """The id of a call that begins."""
    return begin.call_id or f"call_{uuid.uuid4().hex[:24]}"


@dataclass(slots=True)
class _Call:
    begin: CallBegin
    arguments: list[str] = field(default_factory=list)


def message(parts: Iterable[Delta]) -> AssistantMessage:
    """A whole answer's message."""
    content: list[str] = []
    reasoning: list[str] = []
    calls: list[_Call] = []
    for part in parts:
        match part:
            case Content(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case CallBegin():
                calls.append(_Call(part))
            case CallArguments(_, fragment):
                calls[-1].arguments.append(fragment)
    made = [
        ToolCall(call_id(call.begin), CalledFunction("".join(call.arguments), call.begin.name))
        for call in calls
    ]
    return AssistantMessage(
        "".join(content) or (None if made else ""),
        reasoning_content="".join(reasoning) if reasoning else UNSET,
        tool_calls=made or UNSET,
    )


def delta(parts: Iterable[Delta]) -> ChatDelta | None:
    """What some parts add to a message; None where they add nothing. Reasoning, content and each
    call are appended to apart, so their order within a chunk doesn't matter."""
    content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    calls: list[ToolCallDelta] = []
    for part in parts:
        match part:
            case Content(text):
                content = text if isinstance(content, UnsetType) else content + text
            case Reasoning(text):
                reasoning = text if isinstance(reasoning, UnsetType) else reasoning + text
            case CallBegin(index, name):
                function = CalledFunction("", name)
                calls.append(ToolCallDelta(index, function, call_id(part), "function"))
            case CallArguments(index, fragment):
                calls.append(_longer(calls, index, fragment))
    if content is UNSET and reasoning is UNSET and not calls:
        return None
    return ChatDelta(content=content, reasoning_content=reasoning, tool_calls=calls or UNSET)


def _longer(calls: list[ToolCallDelta], index: int, fragment: str) -> ToolCallDelta:
    """Arguments joined to what the chunk has of the call already, which is taken out."""
    if not calls or calls[-1].index != index:
        return ToolCallDelta(index, CalledFunction(fragment))
    last = calls.pop()
    function = CalledFunction(last.function.arguments + fragment, last.function.name)
    return ToolCallDelta(index, function, last.id, last.type)
