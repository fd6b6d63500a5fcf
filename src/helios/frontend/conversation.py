"""Conversations as chat templates read them.

Clients send calls' arguments as JSON text and content as parts; templates want mappings, and text
or parts, whichever they were written for. What is returned is new; nothing of a client's changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from helios.errors import RequestError
from helios.frontend.origins import Origin, by

# Roles that templates make markers of.
_ROLES: Final = frozenset(
    ["assistant", "developer", "function", "ipython", "observation", "system", "tool", "user"]
)
_TEXT_PARTS: Final = frozenset(["text", "input_text", "output_text", "refusal"])

# What templates call an earlier answer's reasoning: most of them, newer ones, those of channels.
_REASONING: Final = ("reasoning_content", "reasoning", "thinking")


def for_template(
    messages: Sequence[Mapping[str, Any]], *, wants_parts: bool
) -> list[dict[str, Any]]:
    """The messages without what is None, with arguments as mappings, reasoning under each name
    that templates have for it, and content as text, or as a list of parts where the template reads
    those. Roles and an assistant's content have their origin. Raises RequestError naming the
    message whose arguments are no JSON object."""
    return [
        _message(message, f"messages[{index}]", wants_parts=wants_parts)
        for index, message in enumerate(messages)
    ]


def _message(message: Mapping[str, Any], where: str, *, wants_parts: bool) -> dict[str, Any]:
    found = {name: value for name, value in message.items() if value is not None}
    content = found.get("content")
    if isinstance(content, list) and not wants_parts:
        found["content"] = "\n".join(part.get("text") or "" for part in content)
    elif isinstance(content, list):
        found["content"] = [_part(part) for part in content]
    elif content is None:
        found["content"] = ""  # templates write None as the word
    reasoning = next((text for name in _REASONING if (text := found.get(name))), None)
    if reasoning is not None:
        found.update(dict.fromkeys(_REASONING, reasoning))
    role = found.get("role")
    if isinstance(role, str) and role in _ROLES:
        found["role"] = by(Origin.TEMPLATE, role)
    if role == "assistant":
        found["content"] = _answered(found["content"])
    calls = found.get("tool_calls")
    if calls:
        found["tool_calls"] = [
            _call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)
        ]
    else:
        found.pop("tool_calls", None)
    return found


def _answered(content: object) -> object:
    """An assistant's content as the model's own output."""
    if isinstance(content, str):
        return by(Origin.ANSWER, content)
    if isinstance(content, list):
        return [
            {**part, "text": _answered(part["text"])} if "text" in part else part
            for part in content
        ]
    return content


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part under the name that templates know it by."""
    if part.get("type") in _TEXT_PARTS:
        return {"type": "text", "text": part.get("text") or ""}
    return dict(part)


def _call(call: Mapping[str, Any], where: str) -> dict[str, Any]:
    found = dict(call)
    function = dict(found.get("function") or {})
    function["arguments"] = _arguments(function.get("arguments"), f"{where}.function.arguments")
    found["function"] = function
    return found


def _arguments(arguments: object, where: str) -> Mapping[str, Any]:
    if isinstance(arguments, Mapping):
        return arguments
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise RequestError(
            "is no JSON object",
            where=where,
            remedy="Send a call's arguments as the model gave them",
        )
    return value
