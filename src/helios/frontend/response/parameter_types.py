"""What a tool's schema says about an argument's type, and an argument's text as JSON of that type.

For syntaxes that write values without saying what they are. A text that doesn't fit its declared
type is a string: nothing that a model wrote is lost or made up.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from helios.dataclass import dataclass

KINDS: Final = ("null", "integer", "number", "boolean", "object", "array", "string")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LITERAL_LIMIT: Final = 1 << 16  # characters
_REFERENCE_LIMIT: Final = 32  # references that lead to each other
# Names that schemas in the wild use, by how they begin.
_OTHER_NAMES: Final = (
    ("str", "string"),
    ("text", "string"),
    ("varchar", "string"),
    ("char", "string"),
    ("enum", "string"),
    ("int", "integer"),
    ("uint", "integer"),
    ("long", "integer"),
    ("short", "integer"),
    ("unsigned", "integer"),
    ("num", "number"),
    ("float", "number"),
    ("double", "number"),
    ("bool", "boolean"),
    ("dict", "object"),
    ("map", "object"),
    ("list", "array"),
    ("arr", "array"),
    ("none", "null"),
)


@dataclass(frozen=True, slots=True)
class ToolSchemas:
    """The tools that a request declares, by name, each with its parameters' JSON schema."""

    parameters: Mapping[str, Mapping[str, Any]]

    def declares(self, name: str) -> bool:
        """Whether there is such a tool."""
        return name in self.parameters

    def kinds(self, tool: str, parameter: str) -> frozenset[str] | None:
        """The JSON types that a parameter may have; None where the schema says nothing."""
        schema = self.parameters.get(tool)
        if schema is None:
            return None
        properties = _resolved(schema, schema).get("properties")
        if not isinstance(properties, Mapping):
            return None
        declared = properties.get(parameter)
        if not isinstance(declared, Mapping):
            return None
        return _kinds(declared, schema, _REFERENCE_LIMIT) or None


def json_of(text: str, kinds: frozenset[str]) -> str:
    """The text as JSON of the first of the kinds, in `KINDS`' order, that it fits; as a string
    where it fits none. Numbers, objects and arrays stay as they are written."""
    bare = text.strip()
    if bare.lower() == "null" and ("null" in kinds or "string" not in kinds):
        return "null"
    if kinds & {"integer", "number"}:
        number = _number(bare, integral="number" not in kinds)
        if number is not None:
            return number
    if "boolean" in kinds and bare.lower() in ("true", "false"):
        return bare.lower()
    if kinds & {"object", "array"}:
        structure = _structure(bare, kinds)
        if structure is not None:
            return structure
    return json.dumps(text, ensure_ascii=False)


def json_or_string(text: str) -> str:
    """The text as it is where it is JSON, else as a JSON string."""
    bare = text.strip()
    return bare if is_json(bare) else json.dumps(text, ensure_ascii=False)


def is_json(text: str) -> bool:
    """Whether a text is one JSON value; its numbers may be any that JSON can write."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True


def _number(text: str, *, integral: bool) -> str | None:
    """The number as it is written, or in JSON's way where JSON doesn't know that writing."""
    if _NUMBER.fullmatch(text):
        return text if not integral or _is_integral(text) else None
    if not text.isascii() or len(text) > 64 or "_" in text:
        return None
    try:
        return str(int(text))
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        return None
    if value - value != 0 or (integral and not value.is_integer()):
        return None
    return repr(value)


def _is_integral(text: str) -> bool:
    return text.lstrip("-").isdigit() or float(text).is_integer()


def _structure(text: str, kinds: frozenset[str]) -> str | None:
    """An object or array as it is written; one in Python's writing as JSON."""
    wanted = tuple(opening for kind, opening in (("object", "{"), ("array", "[")) if kind in kinds)
    if not text.startswith(wanted):
        return None
    if is_json(text):
        return text
    if len(text) > _LITERAL_LIMIT:
        return None
    try:
        value = ast.literal_eval(text)
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that references lead to; an empty one where they lead nowhere."""
    for _ in range(_REFERENCE_LIMIT):
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        target = _at(root, reference)
        if not isinstance(target, Mapping):
            return {}
        schema = target
    return {}


def _at(root: Mapping[str, Any], reference: str) -> Any:
    if not reference.startswith("#"):
        return None
    found: Any = root
    for part in reference[1:].strip("/").split("/"):
        if part:
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _kinds(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> frozenset[str]:
    """The kinds that a schema names, its alternatives included."""
    if depth == 0:
        return frozenset()
    schema = _resolved(schema, root)
    found: set[str] = set()
    declared = schema.get("type")
    names = declared if isinstance(declared, Sequence) and not isinstance(declared, str) else []
    for name in [declared, *names]:
        kind = _kind(name)
        if kind is not None:
            found.add(kind)
    if schema.get("nullable") is True:
        found.add("null")
    for key in ("anyOf", "oneOf", "allOf"):
        branches = schema.get(key)
        for branch in branches if isinstance(branches, Sequence) else ():
            if isinstance(branch, Mapping):
                found |= _kinds(branch, root, depth - 1)
    if not found:
        values = schema.get("enum")
        constants = values if isinstance(values, Sequence) else []
        for value in [*constants, *([schema["const"]] if "const" in schema else [])]:
            found.add(_kind_of(value))
    return frozenset(found)


def _kind(name: object) -> str | None:
    if not isinstance(name, str):
        return None
    lower = name.lower()
    if lower in KINDS:
        return lower
    return next((kind for begin, kind in _OTHER_NAMES if lower.startswith(begin)), None)


def _kind_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case Mapping():
            return "object"
        case _:
            return "array"
