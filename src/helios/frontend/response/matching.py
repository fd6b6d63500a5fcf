"""Finding markers in a text that is still growing.

The law that everything here keeps: what is decided about a text is decided alike however the text
arrives, so a decision waits as long as more text could change it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class Source:
    """What a parser has been given and not consumed yet; `final` once no more will come."""

    __slots__ = ("final", "text")

    def __init__(self) -> None:
        self.text = ""
        self.final = False

    def drop(self, count: int) -> None:
        """Consumes characters."""
        self.text = self.text[count:]


class Found(NamedTuple):
    """Text before a marker, and the marker; None where none is complete. What stands after
    `before` and isn't a marker may still become one."""

    before: str
    marker: str | None


class Markers:
    """A set of texts to look for. Of two that begin at one place the longer one counts, else the
    one that begins earlier."""

    def __init__(self, spellings: Iterable[str]) -> None:
        every = sorted({spelling for spelling in spellings if spelling}, key=len, reverse=True)
        self._every = every
        # With no marker at all, a pattern that never matches.
        self._pattern = re.compile("|".join(map(re.escape, every)) or r"(?!)")
        self._longest = max(map(len, every), default=0)
        self._begins = frozenset(spelling[0] for spelling in every)
        self._prefixes = frozenset(s[:n] for s in every for n in range(1, len(s)))

    def find(self, text: str, *, final: bool) -> Found:
        """The first marker. Unless `final`, text that may still become a marker, or a longer one,
        is left out of `before`."""
        match = self._pattern.search(text)
        if final:
            return Found(text, None) if match is None else Found(text[: match.start()], match[0])
        held = self._undecided(text)
        if match is not None and match.start() < held:
            return Found(text[: match.start()], match[0])
        return Found(text[:held], None)

    def _undecided(self, text: str) -> int:
        """Where the longest end of the text begins that is a proper beginning of a marker."""
        length = len(text)
        begins, prefixes = self._begins, self._prefixes
        for index in range(max(0, length - self._longest + 1), length):
            if text[index] in begins and text[index:] in prefixes:
                return index
        return length


class Verdict(Enum):
    """Whether a text begins with something: yes, no, or more text decides it."""

    YES = "yes"
    NO = "no"
    MORE = "more"


def starts(text: str, wanted: str, *, final: bool) -> Verdict:
    """Whether `text` begins with `wanted`."""
    if text.startswith(wanted):
        return Verdict.YES
    if not final and wanted.startswith(text):
        return Verdict.MORE
    return Verdict.NO


def starts_with_any(text: str, wanted: Iterable[str], *, final: bool) -> Verdict:
    """Whether `text` begins with one of `wanted`; MORE while it may still."""
    verdicts = [starts(text, one, final=final) for one in wanted]
    if Verdict.YES in verdicts:
        return Verdict.YES
    return Verdict.MORE if Verdict.MORE in verdicts else Verdict.NO
