"""Text that a grammar leaves free, up to the first of some stops.

A stop is text, or has a marker in it that is a token, as signs. What spells a stop is one; so free
text holds none, and each ends the text with the character that completes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from helios.frontend.grammar.lark import ANY_TEXT, GrammarWriter, regex

_SIGN: Final = re.compile("[\ud800-\udfff]")
_SOME_TEXT: Final = "/(.|\\n)+/"


def up_to_sign(marked: str) -> str:
    """A marked text as far as its first sign; all of it where it has none."""
    found = _SIGN.search(marked)
    return marked if found is None else marked[: found.end()]


class FreeText:
    """Text in which none of `stops` (marked) is, and none of the texts in `excluded`. These may
    begin or end in a stop, since they are looked for only in what stands before it. With a
    `pattern` the text matches it; nothing in a text and its spelled stop matches `early`."""

    def __init__(
        self,
        writer: GrammarWriter,
        stops: Sequence[str],
        excluded: Sequence[str] = (),
        *,
        pattern: str | None = None,
        early: str = "",
    ) -> None:
        self._writer = writer
        self._text = ANY_TEXT if pattern is None else writer.terminal(regex(f"(?:{pattern})"))
        self._early = early
        if excluded:
            self._text = f"({self._text} & ~({ANY_TEXT} {self._one_of(excluded)} {ANY_TEXT}))"
        spelled = [stop for stop in stops if not _SIGN.search(stop)]
        self._any = self._one_of(spelled) if spelled else ""

    def before(self, stop: str) -> str:
        """Text and the stop that it meets first."""
        found = _SIGN.search(stop)
        spelled = stop if found is None else stop[: found.start()]
        text = f"({self._text} {json.dumps(spelled)})" if spelled else self._text
        if found is None:
            late = f"({ANY_TEXT} {self._any} {_SOME_TEXT})"
            early = f" & ~({ANY_TEXT} {regex(self._early)} {ANY_TEXT})" if self._early else ""
            return self._writer.terminal(f"{text} & ~{late}{early}")
        return f"{self._without(text)} {self._writer.marked_literal(stop[found.start() :])}"

    def counted_before(self, stop: str, least: int, most: int | None) -> str:
        """So many characters and the stop, which is text and the only one. The first of them are
        a terminal of their own, which counts no further: to follow a long count beside what must
        not occur is dear."""
        lengths = range(1, len(stop))
        begun = "|".join(re.escape(stop[:length]).replace("\\\n", "\\n") for length in lengths)
        head = f"{regex(f'(?s:.){{{least}}}')} & ~({ANY_TEXT} {regex(begun)})"
        rest = "" if most is None else most - least
        tail = self._writer.rule(f"/(?s:.){{0,{rest}}}/", f"suffix={json.dumps(stop)}")
        return f"{self._without(head)} {tail}" if least else tail

    def whole(self) -> str:
        """Text that meets no stop."""
        return self._without(self._text)

    def _without(self, text: str) -> str:
        if self._any:
            text = f"{text} & ~({ANY_TEXT} {self._any} {ANY_TEXT})"
        return self._writer.terminal(text)

    def _one_of(self, texts: Sequence[str]) -> str:
        return self._writer.terminal(" | ".join(json.dumps(text) for text in texts))
