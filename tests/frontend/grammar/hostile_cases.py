"""What a client could send to hurt: patterns and grammars, each with how it should end, and the
schemas of `hostile_schemas`."""

from __future__ import annotations

import json
from typing import Final

from tests.frontend.grammar.hostile_makers import (
    EITHER,
    GRAMMAR,
    Hostile,
    gbnf,
    lark,
    options,
    regex,
    schema,
)
from tests.frontend.grammar.hostile_schemas import SCHEMAS
from tests.frontend.grammar.hostile_tags import TAGS

PATTERNS: Final[dict[str, str]] = {
    "(a+)+b": GRAMMAR,
    "(a|aa)*": GRAMMAR,
    "(a|a)*(a|a)*(a|a)*b": GRAMMAR,
    "(.*a){20}": EITHER,
    ".*a.{200}b": EITHER,
    "(a{1000}){1000}": "shortest match",
    "a{1000000000}": "too large",
    "((a{100}){100}){100}": "shortest match",
    "((a{0,1000}){0,1000}){0,1000}": EITHER,
    r"(\w{0,1000},){0,1000}": EITHER,
    ".{0,100000}": GRAMMAR,
    f"[{''.join(chr(0x4E00 + 2 * i) for i in range(8000))}]+": GRAMMAR,
    r"(\p{L}{1,50}\s){100}": GRAMMAR,
    "|".join(f"[a-z]*{i}[a-z]*" for i in range(1000)): EITHER,
    "(" * 5000 + "a" + ")" * 5000: "nested",
    "()*": GRAMMAR,
    "(?=a)b": "lookarounds",
    r"(a)\1": r"\1",
    "(a": "closed",
    "a\\": "backslash",
    "a\x00b": GRAMMAR,
    "a\ud800": "surrogate",
}
REGEXES: Final[dict[str, Hostile]] = {
    **{f"regex {p[:40]!r}": regex(p, ends) for p, ends in PATTERNS.items()},
    **{
        f"pattern {p[:40]!r}": schema(
            {"type": "string", "pattern": p},
            EITHER if ends == GRAMMAR or "\x00" in p or "\ud800" in p or len(p) > 8192 else ends,
        )
        for p, ends in PATTERNS.items()
    },
    "20,000 options": options([f"v{i}" for i in range(20_000)]),
    "30,000 options": options([f"v{i}" for i in range(30_000)], "30000"),
    "an option of 200,000": options(["x" * 200_000], "200000"),
}


def _rules(count: int, body: str, last: str, name: str) -> str:
    lines = [f"{name}{i}: {body.format(n=f'{name}{i + 1}')}" for i in range(count)]
    return "\n".join([f"start: {name}0", *lines, f"{name}{count}: {last}"])


_TEXT: Final = r"(.|\n)"
LARK: Final[dict[str, Hostile]] = {
    "left recursion": lark('start: start "a" | "a"'),
    "right recursion": lark('start: /[a-z]/ start | "a"', EITHER),
    "ambiguous": lark('start: e\ne: e e | "a" | "b" | /[a-z]/', EITHER),
    "more ambiguous": lark('start: e\ne: e e e | e e | /[a-z]+/ | ""', EITHER),
    "empty in circles": lark('start: start | a\na: b\nb: a | ""', EITHER),
    "2 ** 30 of a": lark(_rules(30, "{n} {n}", '"a"', "t"), EITHER),
    "2 ** 40 of a or b": lark(_rules(40, "{n} {n}", '"a" | "b"', "t"), EITHER),
    "2 ** 40 or none": lark(_rules(40, "{n} {n} |", '"a" | "b"', "t"), EITHER),
    "2 ** 30 in one expression": lark(_rules(30, "{n} {n}", '"a"', "T"), "too big"),
    "10,000 rules in a row": lark(_rules(9000, "{n}", '"a"', "t"), "levels"),
    "3,000 expressions in a row": lark(_rules(3000, "{n}", '"a"', "T"), "levels"),
    "100 rules with 20 groups": lark(
        _rules(100, "(" * 20 + "{n}" + ")" * 20, '"a"', "t"), "levels"
    ),
    "counts of counts": lark("start: " + "(" * 4 + '"a"' + "){1000000}" * 4),
    "expressions of counts of counts": lark("start: T\nT: " + "(" * 4 + '"a"' + "){1000000}" * 4),
    "forced without end": lark("start: /a{1000000}/", EITHER),
    "2,000 optional": lark("start: " + " ".join(f'"a{i}"?' for i in range(2000)), EITHER),
    "7,000 expressions": lark("start: " + " | ".join(f"/[a-z]*{i}/" for i in range(7000)), EITHER),
    "20 intersections": lark(
        "start: T\nT: " + " & ".join(f"/{_TEXT}*a{i}{_TEXT}*/" for i in range(20)), "intersections"
    ),
    "11 intersections": lark(
        "start: T\nT: " + " & ".join(f"/{_TEXT}*a{_TEXT}{{{i + 9}}}b{_TEXT}*/" for i in range(11)),
        EITHER,
    ),
    "a complement": lark(
        f"start: T\nT: /{_TEXT}*a{_TEXT}{{20}}/ & ~/{_TEXT}*b{_TEXT}{{20}}/", EITHER
    ),
    "100,000 parentheses": lark("start: " + "(" * 50_000 + '"a"' + ")" * 50_000, "levels"),
    "a text without end": lark('start: "a', "can't be read"),
    "an import": lark("%import common.INT\nstart: INT"),
    "a foreign import": lark("%import os.path\nstart: path", "os.path"),
    "ignored texts": lark('%ignore /(.|\\n)*/\nstart: "a" "b"', EITHER),
    "a declaration": lark("%declare A\nstart: A", "%declare"),
    "options": lark('%llguidance {"allow_invalid_utf8": true}\nstart: "a"', "%llguidance"),
    "no options": lark('%llguidance {}\nstart: "a"'),
    "a token by name": lark("start: <|im_end|>", "im_end"),
    "a token by number": lark("start: <[5]>", "[5]"),
    "any token": lark("start: <[*]>", "[*]"),
    "the server's own grammar": lark("start: @response", "@response"),
    "a grammar inside": lark("start: @{ start: /a/ @}", "@{"),
    "rules with parameters": lark('start: p::0\np::_: "a" p::incr(_)', "parameters"),
    "a temperature": lark("start[temperature=9.5]: /a+/", "temperature"),
    "a stop": lark('start[stop="a"]: /.*/', "stop"),
    "a number of tokens": lark("start[max_tokens=3]: /.*/", "max_tokens"),
    "a schema": lark('start: %json {"type": "object"}'),
    "a lenient schema": lark('start: %json {"x-guidance": {"lenient": true}}', "x-guidance"),
    "a schema of 1,000 levels": lark("start: %json " + '{"not":' * 1000 + "1" + "}" * 1000, "JSON"),
    "no schema": lark("start: %json 5", "schema"),
    "parts of a long text": lark(
        'start: %regex {"substring_chars": "' + "ab" * 60_000 + '"}', EITHER
    ),
    "a rule twice": lark('start: "a"\nstart: "b"', "duplicate"),
    "no start": lark('a: "a"', "start"),
    "an unknown rule": lark("start: a", "unknown"),
    "an expression in itself": lark('start: T\nT: T "a" | "b"', "circular"),
    "too many": lark('start: "a"{99999999999}', "too large"),
    "fewer than none": lark('start: "a"{-3}', "-3"),
    "the wrong way round": lark('start: "a"{5,2}', "(5, 2)"),
    "a zero in text": lark('start: "\x00"', "lexer"),
    "half a pair": lark('start: "\ud800"', EITHER),
    "garbage": lark("\x00\x01\x02%%%", "can't be read"),
    "nothing but space": lark(" \n ", "start"),
}
GBNF: Final[dict[str, Hostile]] = {
    "gbnf": gbnf('root ::= "a" | [b-d]+'),
    "gbnf garbage": gbnf("::= \x00 |||", "name"),
    "gbnf without root": gbnf('a ::= "b"', "root"),
    "gbnf with an unknown rule": gbnf("root ::= b", "b"),
    "gbnf twice": gbnf('root ::= "a"\nroot ::= "b"', "twice"),
    "gbnf of 5,000 groups": gbnf("root ::= " + "(" * 5000 + '"a"' + ")" * 5000, "nested"),
    "gbnf of 3,000 rules": gbnf(
        "\n".join(f'r{i} ::= r{i + 1} "x"' for i in range(3000)) + '\nr3000 ::= "a"\nroot ::= r0',
        "levels",
    ),
    "gbnf with Lark in it": gbnf('root ::= "a" # x\n%llguidance {"no_forcing": false}', "name"),
    "gbnf with Lark in a text": gbnf(f"root ::= {json.dumps(chr(10) + 'start: <[1]>')}"),
    "gbnf counts": gbnf('root ::= "a"{1000000000}', "count"),
    "gbnf none": gbnf('root ::= "b" "a"{0}'),
    "gbnf left recursion": gbnf('root ::= root "a" | "b"'),
    "gbnf right recursion": gbnf("root ::= [a-z] root | [a-z]", EITHER),
    "gbnf escapes": gbnf('root ::= [^"\\\\]+ "\\x41\\u00e9\\U0001F600"'),
    "gbnf half an escape": gbnf('root ::= "a\\', "escape"),
    "gbnf half a class": gbnf("root ::= [a-z", "closed"),
    "gbnf half a pair": gbnf('root ::= "\\ud800"', "character"),
    "gbnf beyond characters": gbnf('root ::= "\\UFFFFFFFF"', "character"),
}

CASES: Final[dict[str, Hostile]] = {**SCHEMAS, **REGEXES, **LARK, **GBNF, **TAGS}
