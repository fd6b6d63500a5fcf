"""The corpus of JSON schemas: the core vocabulary, and what schemas are combined with."""

from __future__ import annotations

from typing import Final

from tests.frontend.grammar.json_schema_cases import Case, Keyword, Text, refuses

A_INT: Final = {"a": {"type": "integer"}}

CORE: Final = [
    Keyword(
        "$schema",
        "core",
        [
            Case({"$schema": "https://json-schema.org/draft/2020-12/schema", "const": 1}, [1], [2]),
            Case(
                {"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [False]},
                [[]],
                [[1]],
            ),
            Case({"$schema": "http://json-schema.org/draft-04/schema#"}, refused="draft-04"),
            Case({"$schema": 5}, refused="$schema"),
        ],
        "2020-12, 2019-09, 7 and 6; keywords mean what they do in 2020-12",
    ),
    Keyword(
        "$id",
        "core",
        [
            Case({"$id": "https://example.com/a", "type": "integer"}, [1], ["x"]),
            Case({"properties": {"a": {"$id": "b"}}}, refused="$id"),
        ],
        "at the root only",
    ),
    Keyword(
        "$ref",
        "core",
        [
            Case({"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}, [1], ["x"]),
            Case(
                {"$ref": "#/$defs/a", "minimum": 3, "$defs": {"a": {"type": "integer"}}}, [3], [2]
            ),
            Case(
                {"properties": {"x": {"$ref": "#/properties/y"}, "y": {"const": 1}}},
                [{"x": 1}],
                [{"x": 2}],
            ),
            Case({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"const": 1}}}, [1], [2]),
            Case({"$ref": "#/$defs/a%25b", "$defs": {"a%b": {"const": 1}}}, [1], [2]),
            Case({"$ref": "#/$defs/a~0b", "$defs": {"a~b": {"const": 1}}}, [1], [2]),
            Case({"$ref": "#/$defs/t", "$defs": {"t": True}}, [1]),
            Case(
                {
                    "$ref": "#/$defs/node",
                    "$defs": {
                        "node": {
                            "type": "object",
                            "properties": {
                                "v": {"type": "integer"},
                                "next": {"$ref": "#/$defs/node"},
                            },
                            "required": ["v"],
                            "additionalProperties": False,
                        }
                    },
                },
                [{"v": 1}, {"v": 1, "next": {"v": 2, "next": {"v": 3}}}],
                [{"v": 1, "next": {}}, {"v": 1, "next": {"v": "x"}}],
            ),
            Case(
                {"properties": {"a": {"$ref": "#"}}, "additionalProperties": False},
                [{"a": {"a": {}}}],
                [{"a": {"b": 1}}],
            ),
            Case({"properties": {"$ref": {"type": "integer"}}}, [{"$ref": 1}], [{"$ref": "x"}]),
            Case({"$ref": "#/$defs/none"}, refused="#/$defs/none"),
            Case({"$ref": "#/const", "const": {}}, refused="#/const"),
            Case({"$ref": "#/$defs", "$defs": {}}, refused="#/$defs"),
            Case({"$ref": "#/$defs/f", "$defs": {"f": False}}, refused="false"),
            Case({"$ref": "https://example.com/a.json"}, refused="https://example.com"),
            Case({"$ref": "#name", "$defs": {"a": {"$anchor": "name"}}}, refused="#name"),
            Case({"$ref": "#"}, refused="fits"),
            Case({"$ref": 5}, refused="$ref"),
        ],
        "places in the schema (`#/…`), recursive ones too unless each has other keywords beside it",
    ),
    Keyword(
        "$defs",
        "core",
        [Case({"$ref": "#/$defs/a", "$defs": {"a": {"const": 1}, "b": {"not": {}}}}, [1], [2])],
    ),
    Keyword(
        "$anchor",
        "core",
        [Case({"$anchor": "a", "type": "integer"}, [1], ["x"])],
        "as a target of `$ref` refused",
    ),
    Keyword(
        "$dynamicAnchor", "core", [Case({"$dynamicAnchor": "a", "type": "integer"}, [1], ["x"])]
    ),
    refuses("$dynamicRef", {"$dynamicRef": "#a"}, "core"),
    refuses("$vocabulary", {"$vocabulary": {}}, "core"),
    Keyword("$comment", "core", [Case({"$comment": "c", "type": "integer"}, [1], ["x"])]),
    Keyword(
        "true and false",
        "core",
        [Case({"properties": {"a": True, "b": False}}, [{"a": [{}]}, {}], [{"b": 1}])],
    ),
]

APPLICATORS: Final = [
    Keyword(
        "allOf",
        "applicator",
        [
            Case({"allOf": [{"type": "integer"}, {"minimum": 3}]}, [3], [2, "x"]),
            Case(
                {"allOf": [{"properties": A_INT}], "additionalProperties": False},
                [{}],
                [{"b": 1}, {"a": 1}],
            ),
            Case(
                {"allOf": [{"properties": A_INT, "required": ["a"]}, {"required": ["b"]}]},
                [{"a": 1, "b": 1}],
                [{"a": 1}, {"b": 1}],
            ),
            Case({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, ["ab", "ba", 1], ["a", "b"]),
            Case({"allOf": [{"type": "integer"}, {"type": "string"}]}, refused="incompatible"),
            Case({"allOf": []}, refused="allOf"),
        ],
    ),
    Keyword(
        "anyOf",
        "applicator",
        [
            Case({"anyOf": [{"type": "integer"}, {"minLength": 2}]}, [1, "ab", 1.5], ["a"]),
            Case(
                {"anyOf": [{"type": "string"}, {"type": "null"}], "maxLength": 2},
                ["ab", None],
                ["abc", 1],
            ),
            Case(
                {
                    "type": "object",
                    "properties": {"a": {}, "b": {}},
                    "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
                },
                [{"a": 1}, {"b": 1}, {"a": 1, "b": 2}],
                [{}],
            ),
            Case({"anyOf": []}, refused="anyOf"),
        ],
    ),
    Keyword(
        "oneOf",
        "applicator",
        [
            Case({"oneOf": [{"type": "integer"}, {"type": "string"}]}, [1, "x"], [None]),
            Case(
                {
                    "oneOf": [
                        {
                            "type": "object",
                            "properties": {"k": {"const": "a"}, "x": {"type": "integer"}},
                            "required": ["k"],
                        },
                        {
                            "type": "object",
                            "properties": {"k": {"const": "b"}, "x": {"type": "string"}},
                            "required": ["k"],
                        },
                    ]
                },
                [{"k": "a", "x": 1}, {"k": "b", "x": "y"}],
                [{"k": "a", "x": "y"}, {"k": "c"}],
            ),
            Case({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, refused="oneOf"),
            Case({"oneOf": [{"type": "integer"}, {"type": "number"}]}, refused="oneOf"),
            Case({"oneOf": [True, True]}, refused="oneOf"),
        ],
        "where the schemas differ by type or by a required constant",
    ),
    refuses("not", {"not": {"type": "integer"}}, "applicator"),
    refuses("if", {"if": {"type": "integer"}, "then": {"minimum": 3}}, "applicator"),
    refuses("then", {"then": {"minimum": 3}}, "applicator"),
    refuses("else", {"else": {"minimum": 3}}, "applicator"),
    refuses("dependentSchemas", {"dependentSchemas": {"a": {"required": ["b"]}}}, "applicator"),
    Keyword(
        "prefixItems",
        "applicator",
        [
            Case(
                {"prefixItems": [{"type": "integer"}, {"type": "string"}]},
                [[], [1], [1, "x"], [1, "x", None], "y"],
                [["x"], [1, 2]],
            ),
            Case({"prefixItems": [{"type": "integer"}], "items": False}, [[1], []], [[1, 2]]),
        ],
    ),
    Keyword(
        "items",
        "applicator",
        [
            Case({"items": {"type": "integer"}}, [[], [1, 2], 5], [["x"], [1, "x"]]),
            Case({"items": False}, [[]], [[1]]),
            Case(
                {"prefixItems": [{"type": "string"}], "items": {"type": "null"}},
                [["x", None]],
                [["x", 1]],
            ),
            Case({"items": [{"type": "integer"}, {"type": "string"}]}, [[1, "x", None]], [["x"]]),
        ],
        "lists of older drafts, too",
    ),
    refuses("contains", {"contains": {"const": 1}}, "applicator"),
    Keyword(
        "properties",
        "applicator",
        [
            Case(
                {"properties": A_INT},
                [{"a": 1}, {}, {"b": "x"}, 5, {"a": 1, "b": "x"}],
                [
                    {"a": "x"},
                    Text('{"\\u0061": "x"}'),
                    Text('{"a": 1, "\\u0061": "x"}'),
                    Text('{"a": 1, "a": "x"}'),
                ],
                narrower=[{"b": "x", "a": 1}],
            ),
            Case(
                {"properties": {'q"\\/': {"const": 1}, "é\n": {"const": 2}, "": {"const": 3}}},
                [{'q"\\/': 1, "é\n": 2, "": 3}],
                [{'q"\\/': 2}, {"é\n": 1}, {"": 1}],
            ),
            Case({"properties": {"a": {"$ref": "#/x"}}}, refused="#/x"),
            Case({"properties": {"\ud800": {}}}, refused="U+D800"),
        ],
        "in the order of the schema, then the others",
    ),
    Keyword(
        "patternProperties",
        "applicator",
        [
            Case(
                {"patternProperties": {"^a": {"type": "integer"}}},
                [{"a": 1}, {"b": "x"}, {"ab": 2, "c": []}],
                [{"ab": "x"}],
            ),
            Case(
                {
                    "patternProperties": {"^a": {"type": "integer"}},
                    "properties": {"ab": {"minimum": 3}},
                    "additionalProperties": False,
                },
                [{"ab": 3}, {"ac": 1}, {"ab": 3, "ac": 1}],
                [{"ab": 2}, {"ab": "x"}, {"b": 1}],
            ),
            Case({"patternProperties": {"^a": False}}, [{"b": 1}], [{"a": 1}]),
            Case({"patternProperties": {"a": {}, "b": {}}}, refused="disjoint"),
            Case({"patternProperties": {"(?=a)": {}}}, refused="patternProperties"),
        ],
        "patterns that no name fits two of",
    ),
    Keyword(
        "additionalProperties",
        "applicator",
        [
            Case({"additionalProperties": False}, [{}, 5], [{"a": 1}]),
            Case(
                {"properties": A_INT, "additionalProperties": {"type": "string"}},
                [{"a": 1, "b": "x"}],
                [{"b": 1}, {"a": "x"}],
            ),
        ],
    ),
    refuses("propertyNames", {"propertyNames": {"maxLength": 3}}, "applicator"),
    refuses("unevaluatedItems", {"unevaluatedItems": False}, "unevaluated"),
    refuses("unevaluatedProperties", {"unevaluatedProperties": False}, "unevaluated"),
]
