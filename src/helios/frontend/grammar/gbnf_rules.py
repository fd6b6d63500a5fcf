"""GBNF grammars as rules: the text is read, its characters and counts are checked.

`gbnf` writes them as Lark's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Final, NoReturn

from helios.dataclass import dataclass
from helios.errors import RequestError
from helios.frontend.grammar.client_grammars import COUNT_LIMIT, RULE_LEVELS_LIMIT
from helios.frontend.grammar.patterns import UnsupportedPatternError, literal

_DEPTH_LIMIT: Final = 50
_ESCAPES: Final = {"n": 10, "r": 13, "t": 9, **{c: ord(c) for c in "\"\\[]-^'/"}}
_HEX: Final = {"x": 2, "u": 4, "U": 8}
ROOT: Final = "root"


@dataclass(slots=True)
class Node:
    """A part of a rule. `kind` says what `parts` are: of a sequence, of alternatives, or the one
    that is counted; `text` is a regular expression, a rule's name or a count."""

    kind: str
    text: str = ""
    parts: list[Node] = field(default_factory=list)


def rules_of(text: str, where: str) -> dict[str, Node]:
    """The rules by name, `root` among them. Raises RequestError naming `where`."""
    return _Reader(text, where).read()


def all_parts(node: Node) -> Iterator[Node]:
    """The node and all in it."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += one.parts


class _Reader:
    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._at = 0
        self._depth = 0
        self._levels = 0
        self._deepest = 0

    def read(self) -> dict[str, Node]:
        rules: dict[str, Node] = {}
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
        if ROOT not in rules:
            self._refuse("there is no rule named root")
        for node in rules.values():
            for part in all_parts(node):
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

    def _alternatives(self) -> Node:
        found = [self._sequence()]
        while self._take("|"):
            self._space(lines=True)
            found.append(self._sequence())
        return Node("choice", parts=found) if len(found) > 1 else found[0]

    def _sequence(self) -> Node:
        parts: list[Node] = []
        nested = self._depth > 0
        while (character := self._peek()) and character not in "|)\r\n":
            parts.append(self._counted(self._part(character)))
            self._space(lines=nested)
        return Node("sequence", parts=parts)

    def _part(self, character: str) -> Node:
        if character == '"':
            return Node("regex", self._quoted())
        if character == "[":
            return Node("regex", self._class())
        if self._take("."):
            return Node("regex", "(?s:.)")
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
        return Node("rule", self._name())

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

    def _counted(self, node: Node) -> Node:
        for mark in "*+?":
            if self._take(mark):
                return Node("count", mark, [node])
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
        return Node("count", count, [node])
