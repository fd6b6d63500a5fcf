"""What each token id adds to a text, as bytes: enough to turn output into text, nothing to encode.

`TokenBytes` reads spellings as the declared decoder says; where they come from is its maker's
choice. `Tokenizer` asks the `tokenizers` library. `read_token_bytes` takes them from the file: a
process that only looks for stops in output opens no tokenizer, which takes several times as long
and lets no other thread run meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from helios.errors import CoreError

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


class Decoder(msgspec.Struct, frozen=True):
    """How spellings become text: a step, or a sequence of them. Which fields mean something is for
    `type` to say."""

    type: str | None = None
    decoders: tuple[Decoder, ...] = ()
    pattern: dict[str, str] = {}
    content: str = ""
    start: int = 0
    stop: int = 0
    replacement: str = _WORD_BOUNDARY
    prepend_scheme: str = "always"

    def steps(self) -> Iterator[Decoder]:
        """All steps, nested sequences flattened."""
        if self.type == "Sequence":
            for step in self.decoders:
                yield from step.steps()
        else:
            yield self


class _Model(msgspec.Struct):
    """Ids by spelling, or (Unigram) the spellings in order, each with its score."""

    vocab: dict[str, int] | list[tuple[str, float]]


class _File(msgspec.Struct):
    """The parts of a tokenizer.json that say what its tokens spell."""

    model: _Model
    added_tokens: list[AddedToken] = []
    decoder: Decoder | None = None


def _byte_of_character() -> dict[str, int]:
    """The inverse of the byte-level alphabet: printable Latin-1 stands for itself, every other
    byte for a character from U+0100 on, in ascending order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return table


_BYTE_OF_CHARACTER: Final = _byte_of_character()


def unreadable(why: str) -> CoreError:
    """A file that is no tokenizer.json."""
    return CoreError(
        f"not a readable tokenizer.json: {why}",
        where="tokenizer",
        remedy="Prepare the core again from a checkpoint with a fast tokenizer",
    )


def read_token_bytes(data: bytes) -> TokenBytes:
    """Those of a tokenizer.json. Raises CoreError as `Tokenizer` does."""
    try:
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise unreadable(str(error)) from error
    vocabulary = file.model.vocab
    spellings = (
        dict(zip(vocabulary.values(), vocabulary, strict=True))
        if isinstance(vocabulary, dict)
        else {token: spelling for token, (spelling, _) in enumerate(vocabulary)}
    )
    return TokenBytes(file.added_tokens, file.decoder, spellings.get)


class TokenBytes:
    """Each token's bytes. `spelling` gives what the vocabulary writes for an id, None where there
    is none.

    `strips_leading_space` says that text which starts a sequence loses one leading space, as
    SentencePiece vocabularies put one before the first word.
    Raises CoreError when the decoder is of an unknown kind.
    """

    def __init__(
        self,
        added: Iterable[AddedToken],
        decoder: Decoder | None,
        spelling: Callable[[int], str | None],
    ) -> None:
        self.added: dict[int, AddedToken] = {token.id: token for token in added}
        self.special_ids = frozenset(t.id for t in self.added.values() if t.special)
        self.strips_leading_space = False
        self.byte_level = False
        self._byte_fallback = False
        self._replacements: list[tuple[str, str]] = []
        self._spelling = spelling
        self._bytes: dict[int, bytes] = {}
        self._read_decoder(decoder)

    def _read_decoder(self, decoder: Decoder | None) -> None:
        steps = [] if decoder is None else list(decoder.steps())
        for step in steps:
            match step.type:
                case "ByteLevel":
                    self.byte_level = True
                case "ByteFallback":
                    self._byte_fallback = True
                case "Fuse":
                    pass
                case "Replace" if "String" in step.pattern:
                    self._replacements.append((step.pattern["String"], step.content))
                case "Strip" if (step.content, step.stop) == (" ", 0):
                    self.strips_leading_space = step.start == 1
                case "Metaspace":
                    self._replacements.append((step.replacement, " "))
                    self.strips_leading_space = step.prepend_scheme != "never"
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
    def byte_spellings(self) -> list[str]:
        """How the vocabulary writes each byte that has a token of its own."""
        if self.byte_level:
            return sorted(_BYTE_OF_CHARACTER, key=_BYTE_OF_CHARACTER.__getitem__)
        return [f"<0x{byte:02X}>" for byte in range(256)]

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
        spelling = self._spelling(token)
        if spelling is None:
            return b""
        if self.byte_level:
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
