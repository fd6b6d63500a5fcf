"""Writing a grammar for llguidance: rules as text, and the grammars that they refer to.

A marker that is a token of its own is written by its id, since text can't spell it; other text is
a string. Rules and embedded grammars get names that no client chooses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from helios.frontend.response.marked_text import MarkerSigns

ANY_TEXT: Final = "/(.|\\n)*/"
_SIGNS: Final = re.compile("([\ud800-\udfff])")


def regex(pattern: str) -> str:
    """A regular expression as grammars write it."""
    return f"/{_inside_slashes(pattern)}/"


def _inside_slashes(pattern: str) -> str:
    """The pattern with what would end or break it escaped; escapes stay as they are."""
    escapes = {"/": "\\/", "\n": "\\n"}
    return re.sub(r"\\.|[/\n]", lambda found: escapes.get(found[0], found[0]), pattern, flags=re.S)


class GrammarWriter:
    """Collects rules; `grammar` puts them together. The signs in `reserved` are those of tokens
    that stand around answers, so none may have one in it."""

    def __init__(self, signs: MarkerSigns, reserved: Collection[str] = ()) -> None:
        self._signs = signs
        self._reserved = reserved
        self._tokens = {sign: token for token, sign in signs.by_token.items()}
        self._rules: list[str] = []
        self._embedded: list[dict[str, Any]] = []

    def literal(self, text: str) -> str:
        """Exactly this text, its markers as their tokens. Empty text is an empty string."""
        return self.marked_literal(self._signs.sign(text))

    def sign(self, text: str) -> str:
        """A text with signs for the markers in it."""
        return self._signs.sign(text)

    def holds_reserved(self, text: str) -> bool:
        """Whether a text has a token that no answer may have in it."""
        return any(sign in self._reserved for sign in self._signs.sign(text))

    def marked_literal(self, marked: str) -> str:
        """Exactly this marked text."""
        parts = []
        for part in _SIGNS.split(marked):
            if part in self._tokens:
                parts.append(f"<[{self._tokens[part]}]>")
            elif part:
                parts.append(json.dumps(part))
        return " ".join(parts) or '""'

    def rule(self, body: str, attributes: str = "") -> str:
        """A new rule; its name. `attributes` go between brackets behind it."""
        name = f"r{len(self._rules)}"
        shown = f"[{attributes}]" if attributes else ""
        self._rules.append(f"{name}{shown}: {body}")
        return name

    def terminal(self, body: str) -> str:
        """A rule that is one regular expression; its name."""
        name = f"T{len(self._rules)}"
        self._rules.append(f"{name}: {body}")
        return name

    def any_text(self) -> str:
        """Any text, without tokens that are markers."""
        return self.rule(ANY_TEXT)

    def is_signed(self, text: str) -> bool:
        """Whether a text holds markers that text can't spell."""
        return _SIGNS.search(self._signs.sign(text)) is not None

    def begins_signed(self, text: str) -> bool:
        """Whether a text begins with a marker that text can't spell."""
        return _SIGNS.match(self._signs.sign(text)) is not None

    def bounded_text_up_to(self, end: str, tokens: int) -> str:
        """As `text_up_to` for an end that begins signed: all that may come after so many tokens."""
        assert self.begins_signed(end)
        return self.rule(f"{self.rule(ANY_TEXT, f'max_tokens={tokens}')} {self.literal(end)}")

    def text_up_to(self, end: str, pattern: str | None = None) -> str:
        """Any text, or one that matches a pattern, and the end that it first meets."""
        marked = self._signs.sign(end)
        found = _SIGNS.search(marked)
        body = ANY_TEXT[1:-1] if pattern is None else f"(?:{_inside_slashes(pattern)})"
        if found is None:
            return self.rule(f"/{body}/", f"suffix={json.dumps(end)}")
        # Text can't spell the token, so all before it is text, the beginning of `end` included.
        before = _inside_slashes(re.escape(marked[: found.start()]))
        text = self.rule(f"/{body}{before}/")
        return self.rule(f"{text} {self.marked_literal(marked[found.start() :])}")

    def text_without(self, unwanted: str) -> str:
        """Any text in which this doesn't occur."""
        inside = _inside_slashes(re.escape(unwanted))
        return self.terminal(f"{ANY_TEXT} & ~/(.|\\n)*{inside}(.|\\n)*/")

    def choice(self, alternatives: list[str]) -> str:
        """One of some expressions."""
        return self.rule(" | ".join(alternatives))

    def json(self, schema: Mapping[str, Any]) -> str:
        """A JSON value of a schema."""
        return self._embed({"json_schema": dict(schema)})

    def lark(self, text: str) -> str:
        """A grammar of a client's own, from its `start`."""
        return self._embed({"lark_grammar": text})

    def grammar(self, start: str) -> str:
        """The whole grammar, as llguidance reads it."""
        rules = "\n".join([f"start: {start}", *self._rules])
        main = {"name": "response", "lark_grammar": rules}
        return json.dumps({"grammars": [main, *self._embedded]})

    def _embed(self, grammar: dict[str, Any]) -> str:
        name = f"g{len(self._embedded)}"
        self._embedded.append({"name": name, **grammar})
        return f"@{name}"
