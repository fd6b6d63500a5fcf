"""`tool_choice` in bodies: whether tools are called, and which of them may be or have to be."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from helios.dataclass import dataclass
from helios.frontend.tools import Calling
from helios.server.failures import invalid, not_supported

_FIELD: Final = "tool_choice"


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`named` is the tool that has to be called; `allowed` are those that may be, None for all."""

    calling: Calling = Calling.AUTO
    named: str | None = None
    allowed: frozenset[str] | None = None


def tool_choice(choice: object, names: Collection[str]) -> ToolChoice:
    """What a body says, with the names of its tools. Raises ApiError 400 naming the place."""
    if choice is None:
        return ToolChoice()
    if isinstance(choice, str):
        try:
            calling = Calling(choice)
        except ValueError:
            raise invalid(
                _FIELD,
                f"tool_choice: {choice!r:.80} is none. Send none, auto, required, or a function",
            ) from None
        if calling is Calling.REQUIRED and not names:
            raise invalid(_FIELD, "tool_choice: required needs tools. Send some")
        return ToolChoice(calling)
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    if isinstance(choice, Mapping) and kind == "allowed_tools":
        return _allowed(choice, names)
    name = _function_name(choice) if kind == "function" else None
    if name is None:
        raise invalid(
            _FIELD,
            'tool_choice: send a text, {"type": "function", "function": {"name": …}}, or'
            ' {"type": "allowed_tools", "allowed_tools": {"mode": …, "tools": […]}}',
        )
    if name not in names:
        raise invalid(_FIELD, f"tool_choice: {name!r:.80} isn't among the tools. Name one of them")
    return ToolChoice(Calling.REQUIRED, name)


def _function_name(said: object) -> str | None:
    """The name of a function as chat completions write it, or shorter, as responses do."""
    if not isinstance(said, Mapping):
        return None
    function = said.get("function")
    name = function.get("name") if isinstance(function, Mapping) else said.get("name")
    return name if isinstance(name, str) else None


def _allowed(choice: Mapping[str, Any], names: Collection[str]) -> ToolChoice:
    """Tools of which some or none are called, or one at least."""
    inner = choice.get("allowed_tools")
    said, where = (choice, _FIELD) if inner is None else (inner, f"{_FIELD}.allowed_tools")
    if not isinstance(said, Mapping):
        raise invalid(where, f"{where} is no object. Send one with mode and tools")
    mode = said.get("mode")
    if mode not in (Calling.AUTO.value, Calling.REQUIRED.value):
        raise invalid(f"{where}.mode", f"{where}.mode: {mode!r:.80} is none. Send auto or required")
    listed = said.get("tools")
    if not isinstance(listed, list) or not listed:
        raise invalid(f"{where}.tools", f"{where}.tools: name at least one of the tools")
    allowed = set()
    for index, tool in enumerate(listed):
        at = f"{where}.tools[{index}]"
        if isinstance(tool, Mapping) and tool.get("type", "function") != "function":
            raise not_supported(f"{at}.type", "Only functions are")
        name = _function_name(tool)
        if name is None:
            raise invalid(at, f'{at}: send {{"type": "function", "function": {{"name": …}}}}')
        if name not in names:
            raise invalid(at, f"{at}: {name!r:.80} isn't among the tools. Name those that are")
        allowed.add(name)
    return ToolChoice(Calling(mode), allowed=frozenset(allowed))
