"""Text that a grammar leaves free, up to the first of some stops.

A stop is text, or has a marker in it that is a token, as signs. What spells a stop is one; so free
text holds none, and each ends the text with the character that completes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from helios.frontend.grammar.lark import ANY_TEXT, GrammarWriter

_SIGN: Final = re.compile("[\ud800-\udfff]")
_SOME_TEXT: Final = "/(.|\\n)+/"


def up_to_sign(marked: str) -> str:
    """A marked text as far as its first sign; all of it where it has none."""
    found = _SIGN.search(marked)
    return marked if found is None else marked[: found.end()]


class FreeText:
    """Text in which none of `stops` (marked) is, and none of the texts in `excluded`. These may
    begin or end in a stop, since they are looked for only in what stands before it."""

    def __init__(
        self, writer: GrammarWriter, stops: Sequence[str], excluded: Sequence[str] = ()
    ) -> None:
        self._writer = writer
        self._text = ANY_TEXT
        if excluded:
            self._text = f"({ANY_TEXT} & ~({ANY_TEXT} {self._one_of(excluded)} {ANY_TEXT}))"
        spelled = [stop for stop in stops if not _SIGN.search(stop)]
        self._any = self._one_of(spelled) if spelled else ""

    def before(self, stop: str) -> str:
        """Text and the stop that it meets first."""
        found = _SIGN.search(stop)
        spelled = stop if found is None else stop[: found.start()]
        text = f"({self._text} {json.dumps(spelled)})" if spelled else self._text
        if found is None:
            late = f"({ANY_TEXT} {self._any} {_SOME_TEXT})"
            return self._writer.terminal(f"{text} & ~{late}")
        return f"{self._without(text)} {self._writer.marked_literal(stop[found.start() :])}"

    def whole(self) -> str:
        """Text that meets no stop."""
        return self._without(self._text)

    def _without(self, text: str) -> str:
        if self._any:
            text = f"{text} & ~({ANY_TEXT} {self._any} {ANY_TEXT})"
        return self._writer.terminal(text)

    def _one_of(self, texts: Sequence[str]) -> str:
        return self._writer.terminal(" | ".join(json.dumps(text) for text in texts))
