"""Turns a stream of tokens into text, one request at a time.

A token is bytes, not characters: a character may take several tokens. The detokenizer holds bytes
back until they make a character or can't any more, so that no delta ever ends in half a character
and no replacement character appears which later bytes would have made unnecessary. However the
stream is cut, the deltas add up to the same text. `OutputPipeline` owns one per request.
"""

from __future__ import annotations

import codecs
from typing import Final

from helios.frontend.token_bytes import TokenBytes

_UTF8: Final = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """`continues` says that the text goes on from a prompt: its leading space is then kept."""

    def __init__(self, tokens: TokenBytes, *, continues: bool) -> None:
        self._tokens = tokens
        self._decoder = _UTF8(errors="replace")
        self._strip_space = tokens.strips_leading_space and not continues

    def push(self, token: int) -> str:
        """The text that `token` completes. Special tokens have none."""
        if token in self._tokens.special_ids:
            return ""
        return self._visible(self._decoder.decode(self._tokens.token_bytes(token)))

    def finish(self) -> str:
        """What is still held back, once no more tokens can come: bytes that never became a
        character are shown as replacement characters."""
        return self._visible(self._decoder.decode(b"", final=True))

    def _visible(self, text: str) -> str:
        if self._strip_space and text:
            self._strip_space = False
            return text.removeprefix(" ")
        return text
