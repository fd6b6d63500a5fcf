"""GBNF grammars, as Lark text.

A rule that refers to no rule but such ones is one regular expression; so is a counted part of one
in other rules, which is therefore read as far as it goes before what follows it. Names are given
anew, so nothing of a client's text but characters and counts gets through.
"""

from __future__ import annotations

from helios.errors import RequestError
from helios.frontend.grammar.client_grammars import OPTIONS, TEXT_LIMIT
from helios.frontend.grammar.gbnf_rules import ROOT, Node, all_parts, rules_of


def lark_of_gbnf(text: str, where: str) -> str:
    """The grammar as Lark text whose start is `root`. Raises RequestError naming `where`."""
    if len(text) > TEXT_LIMIT:
        raise RequestError(
            f"has {len(text)} characters", where=where, remedy=f"Send at most {TEXT_LIMIT}"
        )
    return _Writer(rules_of(text, where)).text()


class _Writer:
    """Rules are named by their number: `t` those that are regular expressions, `r` the others."""

    def __init__(self, rules: dict[str, Node]) -> None:
        self._rules = rules
        self._regular = _regular(rules)
        self._names = {
            name: f"{'T' if name in self._regular else 'r'}{index}"
            for index, name in enumerate(rules)
        }
        self._lines = [OPTIONS, f"start: {self._names[ROOT]}"]

    def text(self) -> str:
        """The whole grammar."""
        for name, node in self._rules.items():
            body = (self._expression if name in self._regular else self._rule)(node)
            self._lines.append(f"{self._names[name]}: {body}")
        return "\n".join(self._lines)

    def _expression(self, node: Node) -> str:
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

    def _rule(self, node: Node) -> str:
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

    def _is_regular(self, node: Node) -> bool:
        return all(part.kind != "rule" or part.text in self._regular for part in all_parts(node))


def _counted(part: str, count: str) -> str:
    """A part so many times; llguidance can't say never."""
    return '""' if count in ("{0}", "{0,0}") else f"({part}){count}"


def _regular(rules: dict[str, Node]) -> frozenset[str]:
    """The rules that lead to no rule that leads back: each is one regular expression."""
    uses = {
        name: {p.text for p in all_parts(node) if p.kind == "rule"} for name, node in rules.items()
    }
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
