"""Tokens as the text that response parsers read, in which markers can't be confused with text.

A marker that is one token of the vocabulary counts only as that token: whoever spells it in other
tokens writes text. So each such token is given to parsers as one character that no text can
contain, a lone surrogate; everything else about them is plain string work. The same goes for a
marker that has such a token in it. One that has none is looked for by its spelling.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping
from typing import Final

from helios.errors import RequestError
from helios.frontend.tokenizer import Tokenizer

_FIRST: Final = 0xD800  # where lone surrogates begin
_SIGNS: Final = re.compile("[\ud800-\udfff]")
_UTF8: Final = codecs.getincrementaldecoder("utf-8")


class MarkerSigns:
    """How markers look to a parser. `tokens` gives the ids of the tokens that are markers or a
    part of one; those in `hidden` are never shown to a reader."""

    def __init__(self, tokens: Mapping[str, int] | None = None, hidden: Iterable[str] = ()) -> None:
        longest_first = sorted(tokens or {}, key=len, reverse=True)
        self._signs = {content: chr(_FIRST + i) for i, content in enumerate(longest_first)}
        unseen = frozenset(hidden)
        self._spellings = {
            sign: "" if content in unseen else content for content, sign in self._signs.items()
        }
        self.by_token = {token: self._signs[content] for content, token in (tokens or {}).items()}

    def sign(self, marker: str) -> str:
        """What stands for a marker in a parser's text: its spelling, with signs for its tokens."""
        for content, sign in self._signs.items():
            marker = marker.replace(content, sign)
        return marker

    def signs_in(self, marker: str) -> list[str]:
        """The signs of the tokens that a marker is or holds."""
        return _SIGNS.findall(self.sign(marker))

    def token_of(self, marker: str) -> int | None:
        """The token that is the whole marker, if one is."""
        sign = self._signs.get(marker)
        return next((token for token, its in self.by_token.items() if its == sign), None)

    def plain(self, text: str) -> str:
        """A parser's text as a reader sees it: signs as their spelling, or hidden."""
        if text.isascii() or not _SIGNS.search(text):
            return text
        return _SIGNS.sub(lambda found: self._spellings.get(found[0], ""), text)


def is_signed(marker: str) -> bool:
    """Whether what stands for a marker holds a sign, so that no text can spell it."""
    return _SIGNS.search(marker) is not None


def marker_signs(
    tokenizer: Tokenizer, markers: Iterable[str], *, strictly: Iterable[str] = ()
) -> MarkerSigns:
    """Signs for the added tokens that `markers` are or hold, and for those in `strictly` that the
    tokenizer encodes as one token of any kind."""
    found: dict[str, int] = {}
    for marker in filter(None, markers):
        for token in _encoded(tokenizer, marker):
            added = tokenizer.added.get(token)
            # One character may be part of any text.
            if added is not None and len(added.content) > 1 and added.content in marker:
                found[added.content] = token
    for marker in filter(None, strictly):
        ids = _encoded(tokenizer, marker)
        if len(ids) == 1 and tokenizer.token_bytes(ids[0]) == marker.encode():
            found[marker] = ids[0]
    special = tokenizer.special_ids
    return MarkerSigns(found, (content for content, token in found.items() if token in special))


def _encoded(tokenizer: Tokenizer, marker: str) -> list[int]:
    """A marker's tokens; none where the vocabulary can't write it."""
    try:
        return tokenizer.encode(marker)
    except RequestError:
        return []


class MarkedReader:
    """One response's tokens to parsers' text. Special tokens that are no marker have none, and
    half a character waits for its other half."""

    def __init__(self, tokenizer: Tokenizer, signs: MarkerSigns, *, continues: bool) -> None:
        self._tokenizer = tokenizer
        self._by_token = signs.by_token
        self._decoder = _UTF8(errors="replace")
        self._strip_space = tokenizer.strips_leading_space and not continues

    def push(self, token: int) -> str:
        """The text that the token completes."""
        sign = self._by_token.get(token)
        if sign is not None:
            return self.finish() + sign
        if token in self._tokenizer.special_ids:
            return ""
        return self._visible(self._decoder.decode(self._tokenizer.token_bytes(token)))

    def finish(self) -> str:
        """What was held back, once nothing can complete it any more."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return self._visible(text)

    def _visible(self, text: str) -> str:
        if self._strip_space and text:
            self._strip_space = False
            return text.removeprefix(" ")
        return text
