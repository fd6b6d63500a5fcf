"""A core's tokenizer: text to ids, and ids to the bytes they stand for.

Wraps the `tokenizers` library around the bytes of a tokenizer.json. It holds no request state:
half characters are the detokenizer's business, prompts that mix markers with user text the
marker guard's. Every other module of this package calls it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import tokenizers

from helios.errors import CoreError, HeliosError, RequestError
from helios.frontend.text_bound import TextBound, text_bound

_WORD_BOUNDARY: Final = "\N{LOWER ONE EIGHTH BLOCK}"  # what SentencePiece writes for a space


class AddedToken(msgspec.Struct, frozen=True):
    """An entry of `added_tokens`: text that becomes one id before the model sees it."""

    id: int
    content: str
    special: bool = False
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = True


class _Model(msgspec.Struct):
    """The kind of model; its vocabulary isn't kept a second time."""

    type: str | None = None


class _Head(msgspec.Struct):
    """The parts of a tokenizer.json that the library doesn't show."""

    added_tokens: list[AddedToken] = []
    decoder: dict[str, Any] | None = None
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None
    model: _Model = msgspec.field(default_factory=_Model)


def _byte_of_character() -> dict[str, int]:
    """The inverse of the byte-level alphabet: printable Latin-1 stands for itself, every other
    byte for a character from U+0100 on, in ascending order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return table


_BYTE_OF_CHARACTER: Final = _byte_of_character()


def _decoder_steps(decoder: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """The decoder's steps, nested sequences flattened."""
    if decoder is None:
        return
    if decoder.get("type") == "Sequence":
        for step in decoder.get("decoders", []):
            yield from _decoder_steps(step)
    else:
        yield decoder


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


def _unreadable(why: str) -> CoreError:
    return CoreError(
        f"not a readable tokenizer.json: {why}",
        where="tokenizer",
        remedy="Prepare the core again from a checkpoint with a fast tokenizer",
    )


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


class Tokenizer:
    """Encodes text and knows each token's bytes.

    `strips_leading_space` says that text which starts a sequence loses one leading space, as
    SentencePiece vocabularies put one before the first word.
    Raises CoreError when the bytes are no tokenizer or its decoder is of an unknown kind.
    """

    def __init__(self, data: bytes) -> None:
        with _failing_as(_unreadable):
            head = msgspec.json.decode(data, type=_Head)
            library = tokenizers.Tokenizer.from_buffer(data)
        # A checkpoint's stored batching settings must not cut or pad prompts.
        library.no_truncation()
        library.no_padding()
        self.library = library
        self.added: dict[int, AddedToken] = {token.id: token for token in head.added_tokens}
        self.special_ids = frozenset(t.id for t in head.added_tokens if t.special)
        self.strips_leading_space = False
        self._byte_level = False
        self._byte_fallback = False
        self._replacements: list[tuple[str, str]] = []
        self._read_decoder(head.decoder)
        self._bytes: dict[int, bytes] = {}
        self._head = head

    def _read_decoder(self, decoder: dict[str, Any] | None) -> None:
        steps = list(_decoder_steps(decoder))
        for step in steps:
            match step.get("type"):
                case "ByteLevel":
                    self._byte_level = True
                case "ByteFallback":
                    self._byte_fallback = True
                case "Fuse":
                    pass
                case "Replace" if isinstance(step.get("pattern"), dict) and (
                    "String" in step["pattern"]
                ):
                    self._replacements.append((step["pattern"]["String"], step["content"]))
                case "Strip" if (step.get("content"), step.get("stop")) == (" ", 0):
                    self.strips_leading_space = step["start"] == 1
                case "Metaspace":
                    self._replacements.append((step.get("replacement", _WORD_BOUNDARY), " "))
                    self.strips_leading_space = step.get("prepend_scheme", "always") != "never"
                case kind:
                    raise CoreError(
                        f"decoder step {kind!r} is not supported",
                        where="tokenizer",
                        remedy="Byte-level and SentencePiece-style decoders are",
                    )
        if not steps:
            raise CoreError(
                "no decoder is declared, so tokens can't be joined into text",
                where="tokenizer",
                remedy="Prepare the core from a tokenizer with a byte-level or "
                "SentencePiece-style decoder",
            )

    @property
    def id_extent(self) -> int:
        """One more than the largest id, added tokens included; 0 without any."""
        return 1 + max(self.library.get_vocab(with_added_tokens=True).values(), default=-1)

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
        by_byte = sorted(_BYTE_OF_CHARACTER, key=_BYTE_OF_CHARACTER.__getitem__)
        return text_bound(
            self.library.get_vocab(with_added_tokens=False),
            [token.content for token in self.added.values()],
            head.normalizer,
            head.pre_tokenizer,
            byte_level=self._byte_level,
            byte_spellings=by_byte if self._byte_level else [f"<0x{b:02X}>" for b in range(256)],
        )

    def token_id(self, content: str) -> int | None:
        """The id of the token spelled `content`, if there is one."""
        found: int | None = self.library.token_to_id(content)
        return found

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token adds to a text; empty for ids without a token.

        Special tokens have their spelling here; whether to show it is the caller's decision.
        """
        known = self._bytes.get(token)
        if known is None:
            known = self._bytes[token] = self._compute_bytes(token)
        return known

    def _compute_bytes(self, token: int) -> bytes:
        added = self.added.get(token)
        if added is not None:
            return added.content.encode()
        spelling = self.library.id_to_token(token)
        if spelling is None:
            return b""
        if self._byte_level:
            try:
                return bytes([_BYTE_OF_CHARACTER[character] for character in spelling])
            except KeyError:
                return spelling.encode()
        for pattern, content in self._replacements:
            spelling = spelling.replace(pattern, content)
        if self._byte_fallback and len(spelling) == 6 and spelling.startswith("<0x"):
            try:
                return bytes([int(spelling[3:5], 16)])
            except ValueError:
                return spelling.encode()
        return spelling.encode()
