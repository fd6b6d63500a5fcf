"""A core's tokenizer: text to ids, and ids to the bytes they stand for.

Wraps the `tokenizers` library around the bytes of a tokenizer.json; what the ids' spellings mean is
in `token_bytes`. It holds no request state: half characters are the detokenizer's business, prompts
that mix markers with user text the marker guard's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import tokenizers

from helios.errors import HeliosError, RequestError
from helios.frontend.text_bound import TextBound, text_bound
from helios.frontend.token_bytes import AddedToken, Decoder, TokenBytes, unreadable
from helios.frontend.tokenizer_file import read_tokenizer

__all__ = ["AddedToken", "Tokenizer", "encode_alone"]


class _Model(msgspec.Struct):
    """The kind of model; its vocabulary isn't kept a second time."""

    type: str | None = None


class _Head(msgspec.Struct):
    """The parts of a tokenizer.json that the library doesn't show."""

    added_tokens: list[AddedToken] = []
    decoder: Decoder | None = None
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None
    model: _Model = msgspec.field(default_factory=_Model)


@contextmanager
def _failing_as(refusal: Callable[[str], HeliosError]) -> Iterator[None]:
    """Turns what the library raises into a refusal that repeats its words: bare Exception, and
    where its Rust code panics something that isn't even that."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise refusal(str(error)) from error


def encode_alone(library: tokenizers.Tokenizer, text: str, where: str) -> list[int]:
    """Token ids of one text, as the library's `encode` gives them. This entry lets other threads
    run meanwhile, which `encode` doesn't, and computes no offsets. Raises RequestError naming
    `where` for text that the vocabulary has no tokens for, not even an unknown one."""

    def without_tokens(why: str) -> RequestError:
        return RequestError(
            f"the model's tokenizer has no tokens for this text ({why})",
            where=where,
            remedy="Leave out characters that the model doesn't know",
        )

    with _failing_as(without_tokens):
        (encoding,) = library.encode_batch_fast([text], add_special_tokens=False)
    ids: list[int] = encoding.ids
    return ids


class Tokenizer(TokenBytes):
    """Encodes text and knows tokens' bytes; `id_extent` is one more than the largest id. Raises
    CoreError when the bytes are no tokenizer or its decoder is of an unknown kind."""

    def __init__(self, data: bytes) -> None:
        with _failing_as(unreadable):
            head = msgspec.json.decode(data, type=_Head)
            library, self.id_extent = read_tokenizer(data)
        # A checkpoint's stored batching settings must not cut or pad prompts.
        library.no_truncation()
        library.no_padding()
        super().__init__(head.added_tokens, head.decoder, library.id_to_token)
        self.library = library
        self._head = head

    def encode(self, text: str, *, where: str = "prompt") -> list[int]:
        """Token ids of `text`, in which markers count as markers. Adds no other token. Raises
        RequestError naming `where` for text without tokens."""
        return encode_alone(self.library, text, where)

    def least_tokens(self, text: bytes) -> int:
        """How many tokens a text, as UTF-8, has at least; 0 where this kind of tokenizer may drop
        or merge any amount of text."""
        return self._text_bound.least_tokens(text) if self._text_bound is not None else 0

    @functools.cached_property
    def _text_bound(self) -> TextBound | None:
        """Made when a long text first asks for it, since it walks the whole vocabulary."""
        head = self._head
        if head.model.type != "BPE":
            return None
        if any(token.lstrip or token.rstrip for token in self.added.values()):
            return None  # such a token takes any amount of white space beside it along
        return text_bound(
            self.library.get_vocab(with_added_tokens=False),
            [token.content for token in self.added.values()],
            head.normalizer,
            head.pre_tokenizer,
            byte_level=self.byte_level,
            byte_spellings=self.byte_spellings,
        )

    def spelling(self, token: int) -> str:
        """A token as the vocabulary spells it; empty for ids without a token."""
        return self.library.id_to_token(token) or ""

    def token_id(self, content: str) -> int | None:
        """The id of the token spelled `content`, if there is one."""
        found: int | None = self.library.token_to_id(content)
        return found
