"""Loads a Hugging Face tokenizer.json and asks it what it does.

Nothing is built here: `gguf_tokenizer` builds one from GGUF metadata. Checkpoint readers call
this to check a tokenizer before it goes into a core.
"""

from __future__ import annotations

from tokenizers import Tokenizer

from ignition.preparation.errors import CheckpointError


def load_tokenizer(content: bytes, where: str) -> Tokenizer:
    """The tokenizer that `content` describes; `where` names the file in errors."""
    try:
        return Tokenizer.from_buffer(content)
    # The package raises plain Exception, whatever is wrong with the file.
    except Exception as error:
        raise CheckpointError(
            f"isn't a tokenizer that can be loaded: {error}",
            where=where,
            remedy="It must be a tokenizer.json of the Hugging Face tokenizers library",
        ) from error


def starts_with(tokenizer: Tokenizer, token: str) -> bool:
    """Whether encoding text puts the special `token` before it."""
    ids = tokenizer.encode("a").ids
    return bool(ids) and ids[0] == tokenizer.token_to_id(token)
