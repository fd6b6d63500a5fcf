"""Which characters of a prompt are markers, and the token ids of the whole.

A marker is a token that structures the prompt: every special token, and added tokens that the
contract declares as tags or that the chat template itself writes. A special token's spelling is
one only where the template wrote all of it; a tag's also in an assistant's content, which is model
output given back. Everybody else's spelling is encoded as ordinary text. Where there is none, the
core's tokenizer encodes the text as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import tokenizers

from helios.dataclass import dataclass
from helios.errors import RequestError
from helios.frontend.origins import Origin, origins_of, plain
from helios.frontend.tokenizer import AddedToken, Tokenizer, encode_alone

# Noncharacters: Unicode reserves them for a program's own use, text never needs them.
# A template that writes CUT lets no token reach across it.
CUT: Final = "\ufdd0"
_OPEN: Final = "\ufdd1"
_CLOSE: Final = "\ufdd2"
# What prompts are made with; a client's text can't have them. The last is for who renders.
RESERVED: Final = re.compile("[\ufdd0-\ufdd3]")


def without_cuts(text: str) -> str:
    """A prompt's text as the model reads it."""
    return plain(text).replace(CUT, "")


class MarkerGuard:
    """The markers of one tokenizer. `syntax` names added tokens that count as markers although
    the tokenizer doesn't call them special; names that are no added token are ignored, since
    text is all they ever are. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, syntax: Iterable[str] = ()) -> None:
        self._tokenizer = tokenizer
        declared = set(syntax)
        # One character can't be told from text, and is no structure that anybody could forge.
        candidates = [token for token in tokenizer.added.values() if len(token.content) > 1]
        markers = [t for t in candidates if t.special or t.content in declared]
        self._spellings = _Spellings(markers)
        self._marker_ids = frozenset(token.id for token in markers)
        self._private = _PrivateTokenizer(tokenizer, markers)

    def encode(self, text: str, *, where: str) -> list[int]:
        """Token ids of a prompt that knows its origins (`origins.Written`).

        Raises RequestError naming `where` if the vocabulary can only write the client's spelling
        of a marker with the marker itself.
        """
        spelled, origins = plain(text), origins_of(text)
        if CUT not in spelled and self._spellings.all_placed(spelled, origins):
            return self._tokenizer.encode(spelled, where=where)
        pieces, end = [], 0
        places = list(self._spellings.placed(spelled, origins))
        for place in places:
            pieces += [spelled[end : place.start], _private_spelling(place.index)]
            end = place.end
        ids = self._private.encode("".join([*pieces, spelled[end:]]), where=where)
        if sum(token in self._marker_ids for token in ids) != len(places):
            raise RequestError(
                "text spells a control token that this vocabulary can't write as plain text",
                where=where,
                remedy="Remove the control token's name from the text",
            )
        return ids


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a text spells the marker with this index."""

    start: int
    end: int
    index: int


class _Spellings:
    """Finds markers' spellings as the tokenizer library does: from the left, the longest first."""

    def __init__(self, markers: Sequence[AddedToken]) -> None:
        self._index = {token.content: index for index, token in enumerate(markers)}
        self._needed = [Origin.TEMPLATE if t.special else Origin.ANSWER for t in markers]
        lengths: dict[str, set[int]] = {}
        for content in self._index:
            lengths.setdefault(content[:2], set()).add(len(content))
        self._lengths = {start: sorted(found, reverse=True) for start, found in lengths.items()}
        firsts = "".join(sorted({re.escape(start[0]) for start in self._lengths}))
        # With no marker at all, a pattern that never matches.
        self._first = re.compile(f"[{firsts}]" if firsts else r"(?!)")

    def all_placed(self, text: str, origins: bytes) -> bool:
        """Whether every spelling in the text is a marker."""
        end = 0
        for start, lengths in self._candidates(text):
            longest = next((n for n in lengths if text[start : start + n] in self._index), None)
            if longest is None or start < end:
                continue
            end = start + longest
            if not self._trusts(self._index[text[start:end]], origins[start:end]):
                return False
        return True

    def placed(self, text: str, origins: bytes) -> Iterator[_Place]:
        """The spellings that are markers, none of which overlap."""
        end = 0
        for start, lengths in self._candidates(text):
            if start < end:
                continue
            for length in lengths:
                index = self._index.get(text[start : start + length])
                if index is not None and self._trusts(index, origins[start : start + length]):
                    end = start + length
                    yield _Place(start, end, index)
                    break

    def _trusts(self, index: int, origins: bytes) -> bool:
        return min(origins) >= self._needed[index]

    def _candidates(self, text: str) -> Iterator[tuple[int, list[int]]]:
        """Where a marker may start, with the lengths of those that start so."""
        for match in self._first.finditer(text):
            lengths = self._lengths.get(text[match.start() : match.start() + 2])
            if lengths is not None:
                yield match.start(), lengths


def _private_spelling(index: int) -> str:
    return f"{_OPEN}{index:x}{_CLOSE}"


class _PrivateTokenizer:
    """The same model, but markers answer to private spellings only, and CUT parts tokens. Shares
    the model with the core's tokenizer, so it costs neither load time nor memory."""

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
                *(
                    tokenizers.AddedToken(
                        content,
                        single_word=token.single_word,
                        lstrip=token.lstrip,
                        rstrip=token.rstrip,
                        normalized=token.normalized,
                    )
                    for token, content in zip(added, contents, strict=True)
                ),
                tokenizers.AddedToken(CUT, normalized=False),
            ]
        )
        for token, content in zip(added, contents, strict=True):
            twin_id = twin.token_to_id(content)
            assert twin_id is not None
            self._real_ids[twin_id] = token.id
        self._cut = twin.token_to_id(CUT)
        self._twin = twin

    def encode(self, text: str, *, where: str) -> list[int]:
        """Token ids in the core's vocabulary. Raises RequestError naming `where`."""
        ids = encode_alone(self._twin, text, where)
        return [self._real_ids.get(token, token) for token in ids if token != self._cut]
