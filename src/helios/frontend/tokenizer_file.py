"""From the bytes of a tokenizer.json to the library's tokenizer, in two thirds of its own time.

The library reads a large vocabulary and its merges into a tree of JSON values first, which takes
most of its time and memory. So what is usual (byte pairs whose merges are pairs, all added tokens
among the vocabulary) is read here: the library gets the file with nothing but the added tokens as
its vocabulary, and then the model made of the vocabulary and merges themselves. The result is the
same, which `tests/frontend/test_tokenizer_file.py` checks; everything else the library reads.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import tokenizers
from tokenizers.models import BPE

# What its model can be told, as the file and the library's constructor name it.
_OPTIONS: Final = frozenset(
    {
        "dropout",
        "unk_token",
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "fuse_unk",
        "byte_fallback",
        "ignore_merges",
    }
)
_PARTS: Final = frozenset({"type", "vocab", "merges"})

_Members = dict[str, msgspec.Raw]


class _Added(msgspec.Struct):
    """An added token, as far as it matters here."""

    id: int
    content: str


def read_tokenizer(data: bytes) -> tuple[tokenizers.Tokenizer, int]:
    """The library's tokenizer, and one more than its largest id (0 without any). Raises what the
    library raises, or msgspec's error, for bytes that are no tokenizer."""
    found = _read_byte_pairs(data)
    if found is not None:
        return found
    library = tokenizers.Tokenizer.from_buffer(data)
    return library, 1 + max(library.get_vocab(with_added_tokens=True).values(), default=-1)


def _read_byte_pairs(data: bytes) -> tuple[tokenizers.Tokenizer, int] | None:
    """As `read_tokenizer`; None for a file that isn't of the usual kind."""
    try:
        file = msgspec.json.decode(data, type=_Members)
        model = msgspec.json.decode(file["model"], type=_Members)
        if msgspec.json.decode(model["type"]) != "BPE" or model.keys() - _PARTS - _OPTIONS:
            return None
        added = msgspec.json.decode(file["added_tokens"], type=list[_Added])
        vocabulary = msgspec.json.decode(model["vocab"], type=dict[str, int])
        merges = msgspec.json.decode(model["merges"], type=list[tuple[str, str]])
    except (KeyError, msgspec.ValidationError):
        return None
    if any(vocabulary.get(token.content) != token.id for token in added):
        return None  # the library gives it an id that depends on the whole vocabulary
    options = {name: msgspec.json.decode(model[name]) for name in model.keys() & _OPTIONS}
    own: dict[str, Any] = {"vocab": {token.content: token.id for token in added}, "merges": []}
    library = tokenizers.Tokenizer.from_buffer(
        msgspec.json.encode({**file, "model": {**model, **own}})
    )
    given = {name: value for name, value in options.items() if value is not None}
    library.model = BPE(vocab=vocabulary, merges=merges, **given)
    return library, 1 + max(vocabulary.values(), default=-1)
