"""Tokens as the text that response parsers read, in which markers can't be confused with text.

A marker that is one token of the vocabulary counts only as that token: whoever spells it in other
tokens writes text. So each such token is given to parsers as one character that no text can
contain, a lone surrogate; everything else about them is plain string work. A marker that is no
token of its own is looked for by its spelling.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping
from typing import Final

from helios.frontend.tokenizer import Tokenizer

_FIRST: Final = 0xD800  # where lone surrogates begin
_SIGNS: Final = re.compile("[\ud800-\udfff]")
_UTF8: Final = codecs.getincrementaldecoder("utf-8")


class MarkerSigns:
    """How markers look to a parser. `tokens` gives the markers that are one token their ids."""

    def __init__(self, tokens: Mapping[str, int] | None = None) -> None:
        tokens = tokens or {}
        self._signs = {marker: chr(_FIRST + i) for i, marker in enumerate(tokens)}
        self._spellings = {sign: marker for marker, sign in self._signs.items()}
        self.by_token = {token: self._signs[marker] for marker, token in tokens.items()}

    def sign(self, marker: str) -> str:
        """What stands for a marker in a parser's text: its sign, or its spelling."""
        return self._signs.get(marker, marker)

    def is_token(self, marker: str) -> bool:
        """Whether the marker counts only as its token."""
        return marker in self._signs

    def plain(self, text: str) -> str:
        """A parser's text as a reader sees it: signs as their spelling."""
        if text.isascii() or not _SIGNS.search(text):
            return text
        return _SIGNS.sub(lambda found: self._spellings.get(found[0], ""), text)


def marker_signs(
    tokenizer: Tokenizer, markers: Iterable[str], *, strictly: Iterable[str] = ()
) -> MarkerSigns:
    """Signs for those `markers` that are added tokens, and for those in `strictly` that the
    tokenizer encodes as one token of any kind."""
    found: dict[str, int] = {}
    added = {token.content: token.id for token in tokenizer.added.values()}
    for marker in markers:
        if marker in added:
            found[marker] = added[marker]
    for marker in strictly:
        ids = tokenizer.encode(marker) if marker and marker not in found else []
        if len(ids) == 1 and tokenizer.token_bytes(ids[0]) == marker.encode():
            found[marker] = ids[0]
    return MarkerSigns(found)


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
