"""Arguments that are written one by one: rules for each parameter of a tool.

A text goes up to its closing tag as it is; any other value is JSON of its schema. Parameters come
in the schema's order, those that aren't required may be left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from helios.errors import RequestError
from helios.frontend.grammar.lark import GrammarWriter
from helios.frontend.grammar.schemas import enforceable
from helios.frontend.tools import Tool

# Writes one argument: its name, whether its value is text, and its value's expression, which ends
# with `end`.
ArgumentForm = Callable[[str, bool, str], str]

DEFINITIONS = ("$defs", "definitions")
_OF_TEXT = frozenset(["type", "description", "title", "default", "examples"])


def arguments_rule(
    writer: GrammarWriter, tool: Tool, end: str, form: ArgumentForm, where: str
) -> str:
    """A rule for all arguments of a tool. `end` closes a value, and `form` writes what stands
    before it."""
    schema = tool.parameters
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        raise RequestError(
            "properties must be an object and required a list",
            where=where,
            remedy="Send a JSON schema of an object",
        )
    parts = []
    for name, declared in properties.items():
        value = {**declared} if isinstance(declared, Mapping) else {}
        is_text = value.get("type") == "string" and set(value) <= _OF_TEXT
        if is_text:
            expression = writer.text_up_to(end)
        else:
            written = _value(writer, value, schema, f"{where}.properties.{name}")
            expression = f"{written} {writer.literal(end)}"
        argument = writer.rule(form(name, is_text, expression))
        parts.append(argument if name in required else f"{argument}?")
    return writer.rule(" ".join(parts) or '""')


def _value(
    writer: GrammarWriter, value: Mapping[str, Any], root: Mapping[str, Any], where: str
) -> str:
    """A value that isn't free text: texts of an enumeration as they are, else JSON."""
    options = value.get("enum", [value["const"]] if "const" in value else None)
    if isinstance(options, list) and options and all(isinstance(o, str) for o in options):
        return writer.choice([json.dumps(option) for option in options])
    definitions = {key: root[key] for key in DEFINITIONS if key in root}
    return writer.json(enforceable({**definitions, **value}, where))


def object_rule(writer: GrammarWriter, tool: Tool, where: str) -> str:
    """All arguments of a tool as one JSON object."""
    return writer.json(enforceable({"type": "object", **tool.parameters}, where))
