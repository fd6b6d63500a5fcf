"""A byte-level tokenizer with any markers as tokens."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Library

from helios.frontend.tokenizer import Tokenizer


def tokenizer_with(special: Iterable[str] = (), added: Iterable[str] = ()) -> Tokenizer:
    """A tokenizer of bytes and these markers."""
    return Tokenizer(tokenizer_data(special, added))


def tokenizer_data(special: Iterable[str] = (), added: Iterable[str] = ()) -> bytes:
    """The same as a tokenizer.json."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate(alphabet)}
    library = Library(models.BPE(vocab=vocabulary, merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(
        [AddedToken(content, special=True, normalized=False) for content in special]
    )
    library.add_tokens([AddedToken(content, special=False, normalized=False) for content in added])
    return library.to_str().encode()
