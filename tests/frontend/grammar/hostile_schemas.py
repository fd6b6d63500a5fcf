"""JSON schemas that a client could send to hurt, each with how it should end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from helios.frontend.grammar.structure import json_schema
from tests.frontend.grammar.hostile_makers import EITHER, WHERE, Hostile, schema


def nested(levels: int, wrap: Callable[[Any], Any]) -> Any:
    """A schema wrapped so many times."""
    value: Any = {"type": "string"}
    for _ in range(levels):
        value = wrap(value)
    return value


def chain(length: int, wrap: Callable[[Any], Any]) -> Any:
    """Definitions that each lead to the next."""
    made = {f"d{i}": wrap({"$ref": f"#/$defs/d{i + 1}"}) for i in range(length)}
    return {"$ref": "#/$defs/d0", "$defs": {**made, f"d{length}": {"type": "string"}}}


def _object(inner: Any) -> Any:
    return {"type": "object", "properties": {"a": inner}, "required": ["a"]}


def _list_of(reference: str) -> Any:
    return {"type": "array", "items": {"$ref": reference}}


def _both(one: Any, other: Any) -> Any:
    references = [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]
    return {"allOf": references, "$defs": {"a": one, "b": other}}


def _any_of_objects(count: int, wide: int) -> Any:
    return {
        "allOf": [
            {
                "anyOf": [
                    {"type": "object", "properties": {f"k{i}.{j}": {"const": j}}}
                    for j in range(wide)
                ]
            }
            for i in range(count)
        ]
    }


SCHEMAS: Final[dict[str, Hostile]] = {
    "everything": schema({}),
    "enum of 100,000": schema({"enum": [f"value {i}" for i in range(100_000)]}, "20000"),
    "enum of 10,000": schema({"enum": [f"v{i}" for i in range(10_000)]}),
    "enum of 9,000 lists": schema({"enum": [[i] for i in range(9000)]}, "2000"),
    "enum of nested lists": schema({"enum": [[[[[i]]]] for i in range(9000)]}, "20000"),
    "28 objects deep": schema(nested(28, _object)),
    "1,000 objects deep": schema(nested(1000, _object), "nested"),
    "28 unions deep": schema(nested(28, lambda one: {"anyOf": [one, {"type": "null"}]})),
    "itself": schema({"$ref": "#"}, "fits"),
    "two of each other": schema(
        _both({"$ref": "#/$defs/b"}, {"$ref": "#/$defs/a"}), "intersection"
    ),
    "a tree": schema({"type": "object", "properties": {"l": {"$ref": "#"}, "r": {"$ref": "#"}}}),
    "a cycle with keywords beside": schema(
        {
            "$ref": "#/$defs/a",
            "minItems": 1,
            "$defs": {"a": {**_list_of("#/$defs/a"), "minItems": 2}},
        }
    ),
    "a cycle that needs itself": schema({"allOf": [{"$ref": "#"}]}, "fits"),
    "two recursive ones at once": schema(
        _both(_list_of("#/$defs/a"), _list_of("#/$defs/b")), "intersection"
    ),
    "no such place": schema({"$ref": "#/$defs/none"}, "leads to no schema"),
    "another server": schema({"$ref": "https://example.com/a.json"}, "example.com"),
    "a file": schema({"$ref": "file:///etc/passwd"}, "passwd"),
    "100 references in a row": schema(chain(100, _object)),
    "5,000 references in a row": schema(chain(5000, lambda one: one), "levels"),
    "800 objects in a row": schema(chain(800, _object), "levels"),
    "2 ** 30 alike": schema(chain(30, lambda one: {"allOf": [one, one]})),
    "2 ** 30 in a tree": schema(chain(30, lambda one: {"properties": {"a": one, "b": one}})),
    "4 ** 12 unions": schema(_any_of_objects(12, 4), "too large"),
    "maxLength of 10 ** 9": schema({"type": "string", "maxLength": 10**9}),
    "minLength of 10 ** 9": schema({"type": "string", "minLength": 10**9}),
    "minItems of 10 ** 9": schema({"type": "array", "minItems": 10**9}),
    "maxItems of 10 ** 9": schema({"type": "array", "maxItems": 10**9}),
    "10 ** 400": schema({"type": "integer", "maximum": 10**400}, "numbers beyond"),
    "1e300": schema({"type": "number", "minimum": -1e300}, "numbers beyond"),
    "multiples of 999,983": schema({"type": "integer", "multipleOf": 999_983}, "divisors"),
    "multiples of three primes": schema(
        {"allOf": [{"type": "integer", "multipleOf": n} for n in (97, 101, 103)]}, "divisors"
    ),
    "multiples of 1e-300": schema({"type": "number", "multipleOf": 1e-300}, EITHER),
    "not a number": Hostile(lambda: json_schema('{"const": NaN}', WHERE), "numbers beyond"),
    "a text of 200,000": schema({"const": "x" * 200_000}, "200000"),
    "a name of 200,000": schema({"properties": {"x" * 200_000: {}}}, "200000"),
    "a title of 300,000": schema({"title": "x" * 300_000}),
    "2,000 strings": schema(
        {"properties": {f"p{i}": {"type": "string"} for i in range(2000)}}, EITHER
    ),
    "5,000 properties": schema({"properties": {f"p{i}": {} for i in range(5000)}}, "2000"),
    "1,000 objects": schema(
        {"properties": {f"p{i}": {"type": "object", "properties": {}} for i in range(1000)}},
        EITHER,
    ),
    "1,900 patterns of names": schema(
        {"patternProperties": {f"^p{i}_": {} for i in range(1900)}}, "patterns of names"
    ),
    "40 patterns of names": schema(
        {
            "type": "object",
            "patternProperties": {f"^{i}(a|b)*a(a|b){{12}}$": {} for i in range(40)},
        },
        EITHER,
    ),
    "1,900 ranges": schema(
        {
            "properties": {
                f"a{i}": {"type": "number", "minimum": i + 0.123456, "maximum": 10**9 + i + 0.98765}
                for i in range(1900)
            }
        },
        "too big",
    ),
    "4,000 patterns at once": schema(
        {"anyOf": [{"type": "string", "pattern": f"^[a-z]*{i}"} for i in range(4000)]}, EITHER
    ),
    "all formats at once": schema(
        {"allOf": [{"format": name} for name in ("uri", "email", "hostname", "json-pointer")]},
        EITHER,
    ),
    "half a pair as a name": schema({"properties": {"\ud800": {}}}, "U+D800"),
    "half a pair as a value": schema({"const": ["\udfff"]}, "U+DFFF"),
    "half a pair as a keyword": schema({"\ud800": 1}, "ud800"),
    "a zero": schema({"const": "\x00"}, "U+0000"),
    "options of llguidance's": schema({"x-guidance": {"lenient": True}}, "x-guidance"),
    "options further in": schema(
        {"properties": {"a": {"x-guidance": {"lenient": True}, "not": {}}}}, "x-guidance"
    ),
}
