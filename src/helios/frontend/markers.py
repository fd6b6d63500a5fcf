"""Keeps user text from being taken for markers.

A marker is a token that structures the prompt: every special token, and added tokens that the
contract declares as tags or that the chat template itself writes. Only the template may place
one. Before rendering, `shield` breaks up each marker that user text spells; `encode` turns the
rendered text into ids so that the template's markers become their tokens and the user's spelling
stays ordinary text. Text without such spellings passes through unchanged and is encoded by the
core's tokenizer as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import tokenizers

from helios.errors import RequestError
from helios.frontend.tokenizer import AddedToken, Tokenizer, encode_alone

# Noncharacters: Unicode reserves them for a program's own use, text never needs them.
_BREAK: Final = "\ufdd0"
_OPEN: Final = "\ufdd1"
_CLOSE: Final = "\ufdd2"
# U+FDD3 is for who renders.
_RESERVED: Final = re.compile("[\ufdd0-\ufdd3]")

_DEPTH_LIMIT: Final = 64


def without_breaks(rendered: str) -> str:
    """A rendered text as it was meant, without what keeps user text from being markers."""
    return rendered.replace(_BREAK, "")


class MarkerGuard:
    """The markers of one tokenizer. `syntax` names added tokens that count as markers although
    the tokenizer doesn't call them special; names that are no added token are ignored, since
    text is all they ever are. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, syntax: Iterable[str] = ()) -> None:
        self._tokenizer = tokenizer
        declared = set(syntax)
        # One character can't be broken up, and is no structure that anybody could forge.
        candidates = [token for token in tokenizer.added.values() if len(token.content) > 1]
        special = [token for token in candidates if token.special]
        markers = [t for t in candidates if t.special or t.content in declared]
        self._special = _Spelling([token.content for token in special])
        self._all = _Spelling([token.content for token in markers])
        self._marker_ids = frozenset(token.id for token in markers)
        self._private = _PrivateTokenizer(tokenizer, markers)

    def shield(
        self, value: object, *, special_only: bool, where: str, depth: int = _DEPTH_LIMIT
    ) -> object:
        """`value` (JSON-like) with each marker in its strings and keys broken up.

        `special_only` leaves declared tags alone: an assistant's message is model output given
        back, and its tags are the template's business. Raises RequestError naming `where` for
        text with the four noncharacters that prompts are made with, and for a value with
        more than `depth` levels of lists and objects.
        """
        if isinstance(value, str):
            if _RESERVED.search(value):
                raise RequestError(
                    "the noncharacters U+FDD0 to U+FDD3 can't be part of a prompt",
                    where=where,
                    remedy="Remove them",
                )
            return (self._special if special_only else self._all).break_up(value)
        if not isinstance(value, dict | list):
            return value
        if depth == 0:
            raise RequestError(
                "it is nested too deeply",
                where=where,
                remedy=f"Use at most {_DEPTH_LIMIT} levels of lists and objects",
            )

        def inner(item: object) -> object:
            return self.shield(item, special_only=special_only, where=where, depth=depth - 1)

        if isinstance(value, dict):
            return {inner(key): inner(item) for key, item in value.items()}
        return [inner(item) for item in value]

    def encode(self, rendered: str, *, where: str) -> list[int]:
        """Token ids of a rendered template whose inputs were shielded.

        Raises RequestError naming `where` if the vocabulary can only write the user's spelling
        of a marker with the marker itself.
        """
        if _BREAK not in rendered:
            return self._tokenizer.encode(rendered, where=where)
        private_text, expected = self._all.substitute(rendered)
        ids = self._private.encode(without_breaks(private_text), where=where)
        if sum(token in self._marker_ids for token in ids) != expected:
            raise RequestError(
                "text spells a control token that this vocabulary can't write as plain text",
                where=where,
                remedy="Remove the control token's name from the text",
            )
        return ids


class _Spelling:
    """Finds the spellings of a set of markers, longest first, as the tokenizer library does."""

    def __init__(self, contents: list[str]) -> None:
        self._index = {content: index for index, content in enumerate(contents)}
        longest_first = sorted(contents, key=len, reverse=True)
        alternatives = "|".join(re.escape(content) for content in longest_first)
        # With no marker at all, a pattern that never matches.
        self._found = re.compile(alternatives or r"(?!)")
        self._prefixes = tuple({c[:n] for c in contents for n in range(1, len(c))})
        self._suffixes = tuple({c[n:] for c in contents for n in range(1, len(c))})

    def break_up(self, text: str) -> str:
        """Breaks every occurrence, and both ends of the text where a marker could be completed
        by what the template puts beside it."""
        starts = sorted(self._starts(text))
        if starts:
            pieces = []
            last = 0
            for start in starts:
                pieces.append(text[last : start + 1])
                last = start + 1
            text = _BREAK.join([*pieces, text[last:]])
        if text.startswith(self._suffixes):
            text = _BREAK + text
        if text.endswith(self._prefixes):
            text += _BREAK
        return text

    def _starts(self, text: str) -> set[int]:
        """Where a marker starts. One search a marker: each is over soon even in a huge text, so
        that other threads get their turn, which a pattern of all markers wouldn't give them."""
        found = set()
        for content in self._index:
            start = text.find(content)
            while start >= 0:
                found.add(start)
                start = text.find(content, start + 1)
        return found

    def substitute(self, text: str) -> tuple[str, int]:
        """Replaces every marker by its private spelling; returns the text and their number."""
        return self._found.subn(lambda match: _private_spelling(self._index[match[0]]), text)


def _private_spelling(index: int) -> str:
    return f"{_OPEN}{index:x}{_CLOSE}"


class _PrivateTokenizer:
    """The same model, but markers answer to private spellings only. Shares the model with the
    core's tokenizer, so it costs neither load time nor memory."""

    def __init__(self, tokenizer: Tokenizer, markers: list[AddedToken]) -> None:
        library = tokenizer.library
        twin = tokenizers.Tokenizer(library.model)
        if library.normalizer is not None:
            twin.normalizer = library.normalizer
        if library.pre_tokenizer is not None:
            twin.pre_tokenizer = library.pre_tokenizer
        private = {token.id: _private_spelling(i) for i, token in enumerate(markers)}
        self._real_ids: dict[int, int] = {}
        added = [token for token in tokenizer.added.values() if token.content]
        contents = [private.get(token.id, token.content) for token in added]
        # All at once: the library looks at every added token after each call.
        twin.add_tokens(
            [
                tokenizers.AddedToken(
                    content,
                    single_word=token.single_word,
                    lstrip=token.lstrip,
                    rstrip=token.rstrip,
                    normalized=token.normalized,
                )
                for token, content in zip(added, contents, strict=True)
            ]
        )
        for token, content in zip(added, contents, strict=True):
            twin_id = twin.token_to_id(content)
            assert twin_id is not None
            self._real_ids[twin_id] = token.id
        self._twin = twin

    def encode(self, text: str, *, where: str) -> list[int]:
        """Token ids in the core's vocabulary. Raises RequestError naming `where`."""
        ids = encode_alone(self._twin, text, where)
        return [self._real_ids.get(token, token) for token in ids]
