"""Conversations as chat templates read them.

Clients send calls' arguments as JSON text and content as parts; templates want mappings, and text
or parts, whichever they were written for. What is returned is new; nothing of a client's changes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from helios.errors import RequestError
from helios.frontend.origins import Origin, by

# Roles that templates make markers of.
_ROLES: Final = frozenset(
    ["assistant", "developer", "function", "ipython", "observation", "system", "tool", "user"]
)
_TEXT_PARTS: Final = frozenset(["text", "input_text", "output_text", "refusal"])

# What templates call an earlier answer's reasoning: most of them, newer ones, those of channels.
REASONING: Final = ("reasoning_content", "reasoning", "thinking")


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
    reasoning = next((text for name in REASONING if (text := found.get(name))), None)
    if reasoning is not None:
        found.update(dict.fromkeys(REASONING, reasoning))
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
        _check_finite(arguments, where)
        return arguments
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    try:
        value = _json_value(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError) as error:
        raise _no_arguments(f"is no JSON object: {error!s:.200}", where) from None
    if not isinstance(value, dict):
        raise _no_arguments("is no JSON object", where)
    return value


def _no_arguments(what: str, where: str) -> RequestError:
    return RequestError(what, where=where, remedy="Send a call's arguments as the model gave them")


def _json_value(text: str) -> Any:
    """What JSON text says. Python would read numbers that aren't JSON's (NaN, Infinity), or that
    become one of them (1e999), and templates would write them as words. Raises ValueError."""

    def finite(number: str) -> float:
        value = float(number)
        if not math.isfinite(value):
            raise ValueError(f"{number[:40]} is no finite number")
        return value

    return json.loads(text, parse_constant=_no_number, parse_float=finite)


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


def _check_finite(value: Any, where: str) -> None:
    """Refuses numbers that JSON doesn't have in values that didn't come as JSON text."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, float) and not math.isfinite(one):
            raise _no_arguments(f"is no JSON object: {one} is no JSON number", where)
        if isinstance(one, Mapping):
            waiting += one.values()
        elif isinstance(one, list | tuple):
            waiting += one
