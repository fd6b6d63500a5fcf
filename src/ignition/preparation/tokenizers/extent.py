"""How many token ids a tokenizer knows. Recipes ask, to say which rows of a head may be sampled."""

from __future__ import annotations

from tokenizers import Tokenizer


def token_extent(tokenizer_json: bytes) -> int:
    """One more than the largest id, added tokens included.

    Checkpoints often pad their embedding past it; those rows have no text and are never sampled.
    """
    vocabulary = Tokenizer.from_buffer(tokenizer_json).get_vocab(with_added_tokens=True)
    return 1 + max(vocabulary.values())
