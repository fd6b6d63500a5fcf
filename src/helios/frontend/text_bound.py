"""How much text a token can stand for: a bound that refuses hopeless prompts before any work.

It holds only for tokenizers that lose no text. Whether one does follows from the steps that its
tokenizer.json declares; for a step that isn't known here there is no bound. `Tokenizer` asks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from helios.dataclass import dataclass

# Composition makes at most three UTF-8 bytes of the decomposed text into one.
_COMPOSITION: Final = 3
_KEEPS_TEXT: Final = frozenset({"ByteLevel", "Metaspace", "Digits"})


@dataclass(frozen=True, slots=True)
class TextBound:
    """`token_nbytes` is the most UTF-8 bytes of text that one token stands for, the bytes in
    `unwritable` not counted: the vocabulary has no token for them, so they are dropped."""

    token_nbytes: int
    unwritable: bytes

    def least_tokens(self, data: bytes) -> int:
        """How many tokens a text of these UTF-8 bytes has at least."""
        return -(-len(data.translate(None, self.unwritable)) // self.token_nbytes)


def text_bound(
    vocabulary: Collection[str],
    added: Iterable[str],
    normalizer: Mapping[str, Any] | None,
    pre_tokenizer: Mapping[str, Any] | None,
    *,
    byte_level: bool,
    byte_spellings: Sequence[str],
) -> TextBound | None:
    """The bound of a vocabulary that spells single bytes as `byte_spellings` says; None where
    there is no bound, because a step may drop or merge any amount of text.

    `added` tokens are spelled in plain text; with `byte_level` a character of the others'
    spelling stands for one byte.
    """
    factor = _shrinks(normalizer)
    if factor is None or not _keeps(pre_tokenizer):
        return None
    unwritable = bytes(b for b, spelling in enumerate(byte_spellings) if spelling not in vocabulary)
    # Only bytes that stay bytes can be told from the rest beforehand.
    if unwritable and (factor > 1 or not byte_level):
        return None
    nbytes = max(len(s) if byte_level else len(s.encode()) for s in vocabulary)
    longest = max([nbytes, *(len(content.encode()) for content in added)])
    return TextBound(longest * factor, unwritable)


def _shrinks(step: Mapping[str, Any] | None) -> int | None:
    """By what factor normalizing may shorten text; None where there is no limit."""
    if step is None:
        return 1
    match step.get("type"):
        case "Sequence":
            factor = 1
            for inner in step.get("normalizers", []):
                inner_factor = _shrinks(inner)
                if inner_factor is None:
                    return None
                factor *= inner_factor
            return factor
        case "Prepend":
            return 1
        case "NFC":
            return _COMPOSITION
        case "Replace":
            pattern = step.get("pattern", {}).get("String")
            grows = pattern is not None and len(step["content"].encode()) >= len(pattern.encode())
            return 1 if grows else None
        case _:
            return None


def _keeps(step: Mapping[str, Any] | None) -> bool:
    """Whether splitting keeps all text."""
    if step is None:
        return True
    match step.get("type"):
        case "Sequence":
            return all(_keeps(inner) for inner in step.get("pretokenizers", []))
        case "Split" | "Punctuation":
            return step.get("behavior") != "Removed"
        case kind:
            return kind in _KEEPS_TEXT
