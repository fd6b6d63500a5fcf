"""Ten schemas as clients have them, with more or less fixed text, and whether a value fits one."""

from __future__ import annotations

import re
from typing import Any


def object_of(**properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


SHORT = {"type": "string", "maxLength": 6, "pattern": "^[a-z]*$"}
DIGITS = {"type": "integer", "minimum": 0, "maximum": 99}
SCHEMAS = [
    object_of(temperature=DIGITS, unit={"enum": ["celsius", "fahrenheit"]}),
    object_of(name=SHORT, email=SHORT, telephone=SHORT),
    object_of(items={"type": "array", "items": DIGITS, "minItems": 2, "maxItems": 4}),
    object_of(accepted={"type": "boolean"}, explanation=SHORT),
    object_of(address=object_of(street=SHORT, city=SHORT), country={"const": "Liechtenstein"}),
    object_of(kind={"enum": ["transfer", "withdrawal"]}, amount=DIGITS, currency={"const": "EUR"}),
    object_of(first={"type": "null"}, second={"type": "null"}, third={"type": "boolean"}),
    object_of(matrix={"type": "array", "items": {"const": "one"}, "minItems": 3, "maxItems": 3}),
    object_of(identifier={"type": "string", "pattern": "^order-[0-9]{4}$"}, quantity=DIGITS),
    object_of(choice={"anyOf": [object_of(left=DIGITS), object_of(right=DIGITS)]}),
]
_TYPES = {"string": str, "boolean": bool, "null": type(None), "array": list, "object": dict}


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is one of the schema, as far as those above go."""
    if "anyOf" in schema:
        return any(fits(value, one) for one in schema["anyOf"])
    if "const" in schema or "enum" in schema:
        return value in schema.get("enum", [schema.get("const")])
    if schema["type"] == "integer":
        return type(value) is int and schema["minimum"] <= value <= schema["maximum"]
    if not isinstance(value, _TYPES[schema["type"]]):
        return False
    if schema["type"] == "string":
        return len(value) <= schema.get("maxLength", 99) and bool(
            re.search(schema["pattern"], value)
        )
    if schema["type"] == "array":
        return schema["minItems"] <= len(value) <= schema["maxItems"] and all(
            fits(item, schema["items"]) for item in value
        )
    if schema["type"] == "object":
        properties = schema["properties"]
        return list(value) == list(properties) and all(
            fits(item, properties[name]) for name, item in value.items()
        )
    return True
