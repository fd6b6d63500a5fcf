"""GBNF grammars, as Lark text.

A rule that refers to no rule but such ones is one regular expression; so is a counted part of one
in other rules, which is therefore read as far as it goes before what follows it. Names are given
anew, so nothing of a client's text but characters and counts gets through.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NoReturn

from helios.errors import RequestError
from helios.frontend.grammar.client_grammars import (
    COUNT_LIMIT,
    OPTIONS,
    RULE_LEVELS_LIMIT,
    TEXT_LIMIT,
)
from helios.frontend.grammar.patterns import UnsupportedPatternError, literal

_DEPTH_LIMIT: Final = 50
_ESCAPES: Final = {"n": 10, "r": 13, "t": 9, **{c: ord(c) for c in "\"\\[]-^'/"}}
_HEX: Final = {"x": 2, "u": 4, "U": 8}
_ROOT: Final = "root"


@dataclass(slots=True)
class _Node:
    """A part of a rule. `kind` says what `parts` are: of a sequence, of alternatives, or the one
    that is counted; `text` is a regular expression, a rule's name or a count."""

    kind: str
    text: str = ""
    parts: list[_Node] = field(default_factory=list)


def lark_of_gbnf(text: str, where: str) -> str:
    """The grammar as Lark text whose start is `root`. Raises RequestError naming `where`."""
    if len(text) > TEXT_LIMIT:
        raise RequestError(
            f"has {len(text)} characters", where=where, remedy=f"Send at most {TEXT_LIMIT}"
        )
    rules = _Reader(text, where).read()
    return _Writer(rules).text()


class _Reader:
    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._at = 0
        self._depth = 0
        self._levels = 0
        self._deepest = 0

    def read(self) -> dict[str, _Node]:
        rules: dict[str, _Node] = {}
        self._space(lines=True)
        while self._at < len(self._text):
            name = self._name()
            self._space(lines=False)
            if not self._take("::="):
                self._refuse("::= is missing")
            self._space(lines=True)
            if name in rules:
                self._refuse(f"the rule {name!r:.80} is there twice")
            rules[name] = self._alternatives()
            self._levels += 1 + self._deepest
            self._deepest = 0
            if self._levels > RULE_LEVELS_LIMIT:
                self._refuse(f"rules and their groups have over {RULE_LEVELS_LIMIT} levels")
            if self._at < len(self._text) and self._text[self._at] not in "\r\n":
                self._refuse("a rule can't be read")
            self._space(lines=True)
        if _ROOT not in rules:
            self._refuse("there is no rule named root")
        for node in rules.values():
            for part in _all(node):
                if part.kind == "rule" and part.text not in rules:
                    self._refuse(f"there is no rule named {part.text!r:.80}")
        return rules

    # ------------------------------------------------------------ characters

    def _refuse(self, why: str) -> NoReturn:
        line = self._text.count("\n", 0, self._at) + 1
        raise RequestError(f"line {line}: {why}", where=self._where, remedy="Send a GBNF grammar")

    def _take(self, expected: str) -> bool:
        found = self._text.startswith(expected, self._at)
        self._at += len(expected) if found else 0
        return found

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _space(self, *, lines: bool) -> None:
        while self._at < len(self._text):
            character = self._peek()
            if character == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif character in " \t" or (lines and character in "\r\n"):
                self._at += 1
            else:
                return

    def _name(self) -> str:
        start = self._at
        while self._peek().isalnum() or self._peek() in ("-", "_"):
            self._at += 1
        if self._at == start:
            self._refuse("a name is missing")
        return self._text[start : self._at]

    def _number(self) -> int:
        start = self._at
        while self._peek().isascii() and self._peek().isdigit():
            self._at += 1
        digits = self._text[start : self._at]
        if not digits or len(digits) > 9 or int(digits) > COUNT_LIMIT:
            self._refuse(f"a count isn't from 0 to {COUNT_LIMIT}")
        return int(digits)

    def _character(self) -> int:
        character = self._peek()
        if not character or character in "\r\n":
            self._refuse("a text or a class isn't closed")
        self._at += 1
        if character != "\\":
            return ord(character)
        kind = self._peek()
        self._at += 1
        if kind in _ESCAPES:
            return _ESCAPES[kind]
        digits = self._text[self._at : self._at + _HEX.get(kind, 0)]
        self._at += len(digits)
        if not digits or len(digits) < _HEX[kind]:
            self._refuse("an escape isn't known or too short")
        if any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            self._refuse("an escape has no hexadecimal number")
        return int(digits, 16)

    def _literal(self, number: int) -> str:
        try:
            return literal(number)
        except UnsupportedPatternError as error:
            self._refuse(str(error))

    # ------------------------------------------------------------ parts

    def _alternatives(self) -> _Node:
        found = [self._sequence()]
        while self._take("|"):
            self._space(lines=True)
            found.append(self._sequence())
        return _Node("choice", parts=found) if len(found) > 1 else found[0]

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        nested = self._depth > 0
        while (character := self._peek()) and character not in "|)\r\n":
            parts.append(self._counted(self._part(character)))
            self._space(lines=nested)
        return _Node("sequence", parts=parts)

    def _part(self, character: str) -> _Node:
        if character == '"':
            return _Node("regex", self._quoted())
        if character == "[":
            return _Node("regex", self._class())
        if self._take("."):
            return _Node("regex", "(?s:.)")
        if self._take("("):
            self._depth += 1
            self._deepest = max(self._deepest, self._depth)
            if self._depth > _DEPTH_LIMIT:
                self._refuse(f"groups are nested more than {_DEPTH_LIMIT} deep")
            self._space(lines=True)
            inner = self._alternatives()
            if not self._take(")"):
                self._refuse("a group isn't closed")
            self._depth -= 1
            return inner
        return _Node("rule", self._name())

    def _quoted(self) -> str:
        self._at += 1
        text = []
        while not self._take('"'):
            text.append(self._literal(self._character()))
        return "".join(text)

    def _class(self) -> str:
        self._at += 1
        negative = self._take("^")
        members = []
        while not self._take("]"):
            first = self._character()
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                last = self._character()
                if last < first:
                    self._refuse("a class has a range that is none")
                members.append(f"{self._literal(first)}-{self._literal(last)}")
            else:
                members.append(self._literal(first))
        if not members:
            self._refuse("a class is empty")
        return f"[{'^' if negative else ''}{''.join(members)}]"

    def _counted(self, node: _Node) -> _Node:
        for mark in "*+?":
            if self._take(mark):
                return _Node("count", mark, [node])
        if not self._take("{"):
            return node
        self._space(lines=True)
        least = self._number()
        self._space(lines=True)
        count = f"{{{least}}}"
        if self._take(","):
            self._space(lines=True)
            most = self._number() if self._peek() != "}" else None
            if most is not None and most < least:
                self._refuse("a count's bounds are the wrong way round")
            count = f"{{{least},{'' if most is None else most}}}"
        self._space(lines=True)
        if not self._take("}"):
            self._refuse("a count isn't closed")
        return _Node("count", count, [node])


def _all(node: _Node) -> Iterator[_Node]:
    """The node and all in it."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += one.parts


class _Writer:
    """Rules are named by their number: `t` those that are regular expressions, `r` the others."""

    def __init__(self, rules: dict[str, _Node]) -> None:
        self._rules = rules
        self._regular = _regular(rules)
        self._names = {
            name: f"{'T' if name in self._regular else 'r'}{index}"
            for index, name in enumerate(rules)
        }
        self._lines = [OPTIONS, f"start: {self._names[_ROOT]}"]

    def text(self) -> str:
        """The whole grammar."""
        for name, node in self._rules.items():
            body = (self._expression if name in self._regular else self._rule)(node)
            self._lines.append(f"{self._names[name]}: {body}")
        return "\n".join(self._lines)

    def _expression(self, node: _Node) -> str:
        """A part of a regular expression, as terminals have it."""
        match node.kind:
            case "regex":
                return f"/{node.text}/" if node.text else '""'
            case "rule":
                return self._names[node.text]
            case "count":
                return _counted(self._expression(node.parts[0]), node.text)
            case "choice":
                return f"({' | '.join(map(self._expression, node.parts))})"
        return " ".join(f"{self._expression(part)}" for part in node.parts) or '""'

    def _rule(self, node: _Node) -> str:
        match node.kind:
            case "count" if self._is_regular(node):
                name = f"C{len(self._lines)}"
                self._lines.append(f"{name}: {self._expression(node)}")
                return name
            case "count":
                return _counted(self._rule(node.parts[0]), node.text)
            case "choice":
                return f"({' | '.join(map(self._rule, node.parts))})"
            case "sequence":
                return " ".join(map(self._rule, node.parts)) or '""'
        return self._expression(node)

    def _is_regular(self, node: _Node) -> bool:
        return all(part.kind != "rule" or part.text in self._regular for part in _all(node))


def _counted(part: str, count: str) -> str:
    """A part so many times; llguidance can't say never."""
    return '""' if count in ("{0}", "{0,0}") else f"({part}){count}"


def _regular(rules: dict[str, _Node]) -> frozenset[str]:
    """The rules that lead to no rule that leads back: each is one regular expression."""
    uses = {name: {p.text for p in _all(node) if p.kind == "rule"} for name, node in rules.items()}
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, used in uses.items():
        for one in used:
            users[one].append(name)
    left = {name: len(used) for name, used in uses.items()}
    ready = [name for name, count in left.items() if not count]
    found = set()
    while ready:
        name = ready.pop()
        found.add(name)
        for user in users[name]:
            left[user] -= 1
            if not left[user]:
                ready.append(user)
    return frozenset(found)
