"""Lark grammars as clients send them: read token by token, so that nothing reaches llguidance that
a client has no business to say.

Refused by name: tokens by name or number and other grammars (an answer holds no markers, and the
grammars around it are the server's), options, and statements and attributes that llguidance
doesn't have or that would change how an answer is sampled. Schemas inside are made enforceable
like any others. How deep rules may lead into each other is bounded, because llguidance follows
them on the thread's stack.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

from helios.errors import RequestError
from helios.frontend.grammar.schemas import enforceable

TEXT_LIMIT: Final = 1 << 17  # characters
# Rules and the groups nested in them, together.
RULE_LEVELS_LIMIT: Final = 500
INTERSECTIONS_LIMIT: Final = 10  # whose states multiply
COUNT_LIMIT: Final = 1_000_000  # of repetitions
# Nothing is forced: what a rule leaves no choice about could be without end.
OPTIONS: Final = '%llguidance {"no_forcing": true}'
_TOKEN: Final = re.compile(
    r"""
    (?P<space>[ \t]+|(?:\#|//)[^\n]*)
    |(?P<line>(?:\r?\n)+[ \t]*)
    |(?P<string>"(?:\\.|[^"\\\n])*"i?)
    |(?P<regex>/(?:\\.|[^/\\\n])+/[imslux]*)
    |(?P<statement>%[a-z]+)
    |(?P<token><[^<>\s]+>)
    |(?P<grammar>@\S*)
    |(?P<name>!?[_?]?[A-Za-z][_A-Za-z0-9\-]*)
    |(?P<number>[+-]?[0-9]+)
    |(?P<mark>->|\.\.|[:,.(){}\[\]~|=+*?&!])
    """,
    re.VERBOSE,
)
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_JSON: Final = json.JSONDecoder()
_ATTRIBUTES: Final = frozenset(["suffix"])
_OPENING: Final = {"(": ")", "[": "]", "{": "}"}


def checked_lark(text: str, where: str) -> str:
    """The grammar as llguidance gets it. Raises RequestError naming `where` and what of it isn't
    supported."""
    if len(text) > TEXT_LIMIT:
        raise RequestError(
            f"has {len(text)} characters", where=where, remedy=f"Send at most {TEXT_LIMIT}"
        )
    return f"{OPTIONS}\n{_Reader(text, where).read()}"


class _Reader:
    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._at = 0
        self._out: list[str] = []
        self._open: list[str] = []
        self._levels = 0
        self._deepest = 0
        self._intersections = 0

    def read(self) -> str:
        name = ""
        while self._at < len(self._text):
            found = _TOKEN.match(self._text, self._at)
            if found is None or found.end() == self._at:
                self._refuse("can't be read")
            kind, part = found.lastgroup, found[0]
            if kind in ("token", "grammar"):
                self._refuse(f"{part!r:.80} isn't supported: answers are text")
            if kind == "statement":
                self._statement(part, found.end())
                continue
            self._at = found.end()
            self._out.append(part)
            if kind == "name":
                name = part
            elif kind == "number" and int(part[:12]) > COUNT_LIMIT:
                self._refuse(f"the count {part:.20} is too large")
            elif kind == "mark":
                self._mark(part, name)
        self._define()
        return "".join(self._out)

    def _refuse(self, why: str) -> NoReturn:
        line = self._text.count("\n", 0, self._at) + 1
        raise RequestError(
            f"line {line}: {why}", where=self._where, remedy="See the page on structured output"
        )

    def _mark(self, mark: str, name: str) -> None:
        if mark in _OPENING:
            self._open.append(_OPENING[mark])
            self._deepest = max(self._deepest, len(self._open))
        elif self._open and mark == self._open[-1]:
            self._open.pop()
        elif mark == ":":
            if self._text.startswith(":", self._at):
                self._refuse("rules with parameters aren't supported")
            self._define()
        elif mark == "&":
            self._intersections += 1
            if self._intersections > INTERSECTIONS_LIMIT:
                self._refuse(f"there are more than {INTERSECTIONS_LIMIT} intersections")
        elif mark == "=" and name not in _ATTRIBUTES:
            self._refuse(f"the attribute {name!r:.80} isn't supported")

    def _define(self) -> None:
        """A definition begins, or the text ends."""
        self._levels += 1 + self._deepest
        self._deepest = len(self._open)
        if self._levels > RULE_LEVELS_LIMIT:
            self._refuse(f"rules and their groups have over {RULE_LEVELS_LIMIT} levels together")

    def _statement(self, statement: str, end: int) -> None:
        match statement:
            case "%ignore" | "%import":
                self._out.append(statement)
                self._at = end
            case "%json":
                schema = self._value(statement, end)
                if isinstance(schema, bool):
                    schema = {} if schema else {"enum": []}
                if not isinstance(schema, dict):
                    self._refuse("%json has no schema")
                self._out.append(f"%json {json.dumps(enforceable(schema, self._where))}")
            case "%regex":
                self._out.append(f"%regex {json.dumps(self._value(statement, end))}")
            case "%llguidance" if self._value(statement, end) == {}:
                pass
            case _:
                self._refuse(f"{statement} isn't supported")

    def _value(self, statement: str, end: int) -> Any:
        """The JSON value behind a statement, which is read with it."""
        space = _SPACE.match(self._text, end)
        try:
            value, self._at = _JSON.raw_decode(self._text, space.end() if space else end)
        except (ValueError, RecursionError):
            self._refuse(f"no JSON stands behind {statement}")
        return value
