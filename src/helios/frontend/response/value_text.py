"""A value between tags: where it ends, and its text where that is given out only as a whole.

A tag that text can spell may stand in a string of a value that is JSON, and then ends nothing. So
in an object or array strings are followed, and tags looked for only between them. That holds as
long as the value is JSON: where it turns out to be none (a string that a line ends, an apostrophe
between strings, no end in the response) it is read again from its beginning, and the first tag
ends it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

from helios.frontend.response.matching import Found, Markers, Source
from helios.frontend.response.parameter_types import is_json

# What a string has in it before its end. A sign (a token that is a marker) is in none.
_IN_STRING: Final = re.compile(
    r'[^"\\\x00-\x1f\ud800-\udfff]*(?:\\[^\x00-\x1f\ud800-\udfff][^"\\\x00-\x1f\ud800-\udfff]*)*'
)
_QUOTE: Final = '"'
_NO_JSON: Final = ("'", "\\")  # between the strings of JSON
_STRUCTURES: Final = frozenset(["object", "array"])


class _Reads(Enum):
    TEXT = "text: the first tag ends it"
    BEGINNING = "what may be a structure, by its first character"
    STRUCTURE = "between the strings of a structure"
    STRING = "inside one of them"


class ValueText:
    """`tags` end values; `plain` turns what the text has for markers into their spelling. After
    `begin`: `find` and `keep` until the value ends, if it is `whole` there; then `take`."""

    def __init__(self, tags: Iterable[str], plain: Callable[[str], str]) -> None:
        tags = list(tags)
        self._plain = plain
        self._tags = Markers(tags)
        self._tags_and_quotes = Markers([*tags, _QUOTE, *_NO_JSON])
        self._reads = _Reads.TEXT
        self._kept: list[str] = []

    def begin(self, kinds: frozenset[str] | None) -> None:
        """A value of such kinds begins; None: of any."""
        may_be = kinds is None or not _STRUCTURES.isdisjoint(kinds)
        self._reads = _Reads.BEGINNING if may_be else _Reads.TEXT
        self._kept = []

    def find(self, source: Source, *, final: bool) -> Found:
        """The first tag that may end the value, as `Markers.find` in what the source has then:
        strings are taken from it and kept."""
        while self._reads is not _Reads.TEXT:
            if self._reads is _Reads.BEGINNING:
                bare = source.text.lstrip()
                if not bare:
                    break
                self._reads = _Reads.STRUCTURE if bare[0] in "{[" else _Reads.TEXT
            elif self._reads is _Reads.STRING:
                if not self._string(source):
                    return Found("", None)
            else:
                found = self._tags_and_quotes.find(source.text, final=final)
                if found.marker == _QUOTE:
                    self._keep_from(source, len(found.before) + 1)
                    self._reads = _Reads.STRING
                elif found.marker in _NO_JSON or (found.marker is None and source.final):
                    self._read_again(source)
                else:
                    return found
        return self._tags.find(source.text, final=final)

    def keep(self, text: str) -> None:
        """More of the value."""
        self._kept.append(text)

    def whole(self, source: Source, rest: str) -> bool:
        """Whether the value may end with `rest`, which the source begins with. If not, it is read
        again."""
        if self._reads is not _Reads.STRUCTURE or is_json(self._text(rest).strip()):
            return True
        self._read_again(source)
        return False

    def take(self) -> str:
        """The value's text."""
        return self._text("")

    def before_tag(self, text: str) -> str:
        """What of the text at a cut value's end is certainly no tag, nor the beginning of one."""
        return self._tags.find(text, final=False).before

    def _text(self, rest: str) -> str:
        return self._plain("".join(self._kept) + rest)

    def _keep_from(self, source: Source, count: int) -> None:
        self._kept.append(source.text[:count])
        source.drop(count)

    def _string(self, source: Source) -> bool:
        """Goes on in a string; whether there is more to do."""
        text = source.text
        match = _IN_STRING.match(text)
        assert match is not None
        end = match.end()
        if text[end : end + 1] == _QUOTE:
            self._keep_from(source, end + 1)
            self._reads = _Reads.STRUCTURE
        elif source.final or text[end:] not in ("", "\\"):
            self._read_again(source)
        else:
            self._keep_from(source, end)
            return False
        return True

    def _read_again(self, source: Source) -> None:
        source.text = "".join(self._kept) + source.text
        self._kept = []
        self._reads = _Reads.TEXT
