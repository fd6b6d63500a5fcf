"""The corpus of JSON schemas: the validation vocabulary."""

from __future__ import annotations

from typing import Final

from tests.frontend.grammar.json_schema_cases import Case, Keyword, Text, refuses

A_INT: Final = {"a": {"type": "integer"}}

VALIDATION: Final = [
    Keyword(
        "type",
        "validation",
        [
            Case({"type": "null"}, [None], [0, False, ""]),
            Case({"type": "boolean"}, [True, False], ["true", 0]),
            Case({"type": "string"}, ["", 'é\n"\\ 😀'], [1, None]),
            Case(
                {"type": "number"},
                [0, -1, 1.5, Text("1e400"), Text("1E-5")],
                ["1", Text("01"), Text("1."), Text(".5"), Text("+1")],
            ),
            Case(
                {"type": "integer"},
                [0, -5, 10**30],
                [1.5, "1"],
                narrower=[Text("1.0"), Text("1e2")],
            ),
            Case({"type": "array"}, [[], [1, [{}]]], [{}, "[]"]),
            Case({"type": "object"}, [{}, {"a": {"b": []}}], [[], "{}"]),
            Case({"type": ["integer", "null"]}, [1, None], ["x", 1.5]),
            Case({"type": "any"}, refused="any"),
            Case({"type": []}, refused="type"),
            Case({"type": None}, refused="type"),
        ],
        "integers without point and exponent; texts without `\\u`, so without rare controls",
    ),
    Keyword(
        "enum",
        "validation",
        [
            Case(
                {"enum": [1, "1", None, [1], {"a": True}]},
                [1, "1", None, [1], {"a": True}],
                [True, 2, "2", [], {"a": 1}],
            ),
            Case({"type": "string", "enum": ["a", 1]}, ["a"], [1]),
            Case({"enum": ["a", "ab"], "minLength": 2}, ["ab"], ["a"]),
            Case({"enum": ['a\n"\\/é😀\u2028']}, ['a\n"\\/é😀\u2028'], ["a"]),
            Case({"enum": [1.0, 2]}, [1, 2], [3]),
            Case({"enum": []}, refused="enum"),
            Case({"enum": ["a"], "type": "integer"}, refused="incompatible"),
        ],
    ),
    Keyword(
        "const",
        "validation",
        [
            Case({"const": 1}, [1], [2, True, "1"], narrower=[Text("1.0")]),
            Case({"const": 0.1}, [0.1], [0.11, 0], narrower=[Text("0.10"), Text("1e-1")]),
            Case({"const": -0.0}, [0], [1]),
            Case({"const": 1e-7}, [Text("0.0000001")], [0]),
            Case(
                {"const": {"b": 1, "a": [None]}},
                [{"b": 1, "a": [None]}],
                [{"b": 1}, {"b": 1, "a": []}],
                narrower=[{"a": [None], "b": 1}],
            ),
            Case({"const": False}, [False], [0]),
            Case({"const": 2**53}, [2**53], [2**53 + 1]),
            Case({"const": 2**53 + 1}, refused="numbers beyond"),
            Case({"const": "\x00"}, refused="U+0000"),
            Case({"const": 5, "minimum": 6}, refused="minimum"),
        ],
        "numbers and names as they are written",
    ),
    Keyword(
        "multipleOf",
        "validation",
        [
            Case({"multipleOf": 0.01}, [0.01, 1, 2.5, "x"], [0.015]),
            Case({"type": "integer", "multipleOf": 7}, [0, 7, -14], [1, 6]),
            Case({"type": "number", "multipleOf": 1.5}, [1.5, 3], [2]),
            Case({"type": "integer", "multipleOf": 2.5}, [5], [2]),
            Case({"multipleOf": 0}, refused="multipleOf"),
            Case({"multipleOf": -2}, refused="multipleOf"),
            Case({"multipleOf": 99991}, refused="multipleOf"),
        ],
        "divisors of up to 50,000 together, decimal points aside",
    ),
    Keyword(
        "maximum",
        "validation",
        [
            Case({"maximum": 3.5}, [3.5, 3, -10, "x"], [3.51, 4], narrower=[Text("1e0")]),
            Case({"maximum": 0.97}, [0.97, 0.95], [0.98], narrower=[0.9]),
            Case({"type": "integer", "maximum": 3.5}, [3], [4]),
            Case({"maximum": 2**70}, refused="maximum"),
        ],
        "no exponents, and not all decimals that are shorter than the bound",
    ),
    Keyword(
        "exclusiveMaximum",
        "validation",
        [
            Case({"exclusiveMaximum": 3}, [2.99, 2], [3, 3.1]),
            Case({"type": "integer", "exclusiveMaximum": 3}, [2], [3]),
            Case({"maximum": 3, "exclusiveMaximum": True}, refused="exclusiveMaximum"),
            Case({"exclusiveMaximum": -2, "minimum": -2.5}, refused="exclusiveMaximum"),
        ],
        "as `maximum`; not at a whole number less than 1 from the other bound",
    ),
    Keyword(
        "minimum",
        "validation",
        [
            Case({"minimum": 0.1}, [0.1, 1, "x"], [0.09999, -1, Text("1e-5")]),
            Case({"type": "integer", "minimum": -3}, [-3, 0, 10**20], [-4]),
            Case({"minimum": "1"}, refused="minimum"),
            Case({"minimum": -0.97}, [-0.97], [-0.98], narrower=[-0.9]),
        ],
        "as `maximum`",
    ),
    Keyword(
        "exclusiveMinimum",
        "validation",
        [
            Case({"exclusiveMinimum": 0}, [0.01, 1], [0, -1, Text("0.0"), Text("-0")]),
            Case({"exclusiveMinimum": 0, "maximum": 1}, [0.5, 1], [0, 1.1]),
            Case({"exclusiveMinimum": 0, "maximum": 0.5}, refused="exclusiveMinimum"),
            Case({"exclusiveMinimum": 0, "allOf": [{"maximum": 0.5}]}, refused="exclusiveMinimum"),
        ],
        "as `exclusiveMaximum`",
    ),
    Keyword(
        "maxLength",
        "validation",
        [
            Case({"maxLength": 2}, ["", "ab", "😀😀", "é", "\n\n", 12345], ["abc", "😀😀😀"]),
            Case({"maxLength": 2.0}, ["ab"], ["abc"]),
            Case({"maxLength": -1}, refused="maxLength"),
            Case({"maxLength": 2.5}, refused="maxLength"),
        ],
    ),
    Keyword(
        "minLength",
        "validation",
        [
            Case({"minLength": 2}, ["ab", "😀😀", "\n\n", 1], ["a", "😀", "é", "\n"]),
            Case({"type": "string", "minLength": 3, "maxLength": 2}, refused="minLength"),
        ],
    ),
    Keyword(
        "pattern",
        "validation",
        [
            Case({"pattern": "b"}, ["abc", "b", 5, "x\nb\n"], ["ac", ""]),
            Case({"pattern": "^a$"}, ["a"], ["a\n", "ba"]),
            Case({"pattern": "a|^b$"}, ["xax", "b"], ["bb", "cb"]),
            Case({"pattern": "^(a$|b)"}, ["a", "bx"], ["ax"]),
            Case({"pattern": "^.$"}, ["a", "😀", "\x85"], ["\n", "\r", "\u2028", ""]),
            Case(
                {"pattern": r"^\d\w\s$"},
                ["1_\ufeff", "9Z\u00a0", "0a\u3000"],
                ["\u0661a ", "1é ", "1a\u200b", "1a\x85"],
            ),
            Case({"pattern": r"^\D\W\S$"}, ["\u0661éa", "a-\x85"], ["1éa", "aaa", "a-\ufeff"]),
            Case({"pattern": r"^[\d\-a-c&&\[\]~~]+$"}, ["1-a&[]~"], ["d", "."]),
            Case({"pattern": "^[[a]&&[b]]$"}, ["[&&b]", "a&&b]"], ["a", "b"]),
            Case({"pattern": "^[&&[~]$"}, ["&", "[", "~"], ["a"]),
            Case({"pattern": r"^\u0041\x42\u{43}\ud83d\ude00\cI\t\0?$"}, ["ABC😀\t\t"], ["ABC😀"]),
            Case(
                {"pattern": r"^\p{L}\P{Lu}\p{Script=Greek}$"},
                ["éa\u03b1"],
                ["1a\u03b1", "éA\u03b1"],
            ),
            Case({"pattern": "^(?<year>[0-9]{4})-(?:0[1-9]|1[0-2])$"}, ["2020-01"], ["2020-13"]),
            Case(
                {"pattern": "^a{2,3}?b{2}c{1,}$"}, ["aabbc", "aaabbcc"], ["abbc", "aaaabbc", "aabb"]
            ),
            Case({"pattern": r"^{a,3}\/\.$"}, ["{a,3}/."], ["{a,3}/x"]),
            Case({"pattern": ""}, ["", "a"]),
            Case({"pattern": "(?=a)"}, refused="lookarounds"),
            Case({"pattern": "(?i:a)"}, refused="flags"),
            Case({"pattern": r"(a)\1"}, refused="pattern"),
            Case({"pattern": r"\bfoo"}, refused="pattern"),
            Case({"pattern": r"\a"}, refused="pattern"),
            Case({"pattern": "(a"}, refused="pattern"),
            Case({"pattern": "a**"}, refused="pattern"),
            Case({"pattern": "["}, refused="pattern"),
            Case({"pattern": "a{3,2}"}, refused="pattern"),
            Case({"pattern": "a$b"}, refused="a$b"),
            Case({"pattern": "^(a{1000}){1000}$"}, refused="shortest match"),
        ],
        "ECMA 262's; no lookarounds, backreferences, word boundaries or flags",
    ),
    Keyword(
        "maxItems",
        "validation",
        [
            Case({"maxItems": 2}, [[], [1, 2], {"a": 1}], [[1, 2, 3]]),
            Case({"maxItems": 0}, [[]], [[1]]),
        ],
    ),
    Keyword(
        "minItems",
        "validation",
        [
            Case({"minItems": 2}, [[1, 2], [1, 2, 3], "x"], [[], [1]]),
            Case({"type": "array", "minItems": 3, "maxItems": 2}, refused="minItems"),
        ],
    ),
    Keyword(
        "uniqueItems",
        "validation",
        [
            Case({"uniqueItems": False}, [[1, 1]]),
            Case({"uniqueItems": True}, refused="uniqueItems"),
        ],
        "`false` alone",
    ),
    refuses("maxContains", {"maxContains": 2}, "validation"),
    refuses("minContains", {"minContains": 2}, "validation"),
    Keyword(
        "maxProperties",
        "validation",
        [
            Case({"maxProperties": 1}, [{}, {"a": 1}, [1, 2]], [{"a": 1, "b": 2}]),
            Case(
                {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "maxProperties": 2},
                refused="maxProperties",
            ),
        ],
        "where all `properties` are required, or with 1",
    ),
    Keyword(
        "minProperties",
        "validation",
        [
            Case({"minProperties": 1}, [{"a": 1}, {"a": 1, "b": 2}, 5], [{}]),
            Case(
                {
                    "type": "object",
                    "properties": {"a": {}, "b": {}},
                    "additionalProperties": False,
                    "minProperties": 1,
                },
                [{"a": 1}, {"b": 1}],
                [{}],
            ),
            Case({"required": ["a", "b"], "minProperties": 2}, [{"a": 1, "b": 1}], [{"a": 1}]),
            Case({"minProperties": 2}, refused="minProperties"),
        ],
        "1, or as many as are required: a name that comes twice counts once",
    ),
    Keyword(
        "required",
        "validation",
        [
            Case(
                {"required": ["a"]},
                [{"a": 1}, {"a": 1, "b": 2}, 5],
                [{}, {"b": 1}],
                narrower=[{"b": 1, "a": 1}],
            ),
            Case({"properties": A_INT, "required": ["a"]}, [{"a": 1}], [{}, {"a": "x"}]),
            Case({"required": "a"}, refused="required"),
        ],
        "in the order of the schema",
    ),
    refuses("dependentRequired", {"dependentRequired": {"a": ["b"]}}, "validation"),
]
