"""Loads a Hugging Face tokenizer.json and asks it what it does.

Nothing is built here: `gguf_tokenizer` builds one from GGUF metadata. Checkpoint readers call
this to check a tokenizer before it goes into a core.
"""

from __future__ import annotations

from tokenizers import Tokenizer

from ignition.preparation.errors import CheckpointError


def load_tokenizer(content: bytes, where: str, rows: int) -> Tokenizer:
    """The tokenizer that `content` describes, for an embedding of `rows` rows; `where` names the
    file in errors."""
    try:
        tokenizer = Tokenizer.from_buffer(content)
    # The package raises plain Exception, whatever is wrong with the file, and may quote the file.
    except Exception as error:
        raise CheckpointError(
            f"isn't a tokenizer that can be loaded: {error!s:.200}",
            where=where,
            remedy="It must be a tokenizer.json of the Hugging Face tokenizers library",
        ) from error
    check_ids(tokenizer, where, rows)
    return tokenizer


def check_ids(tokenizer: Tokenizer, where: str, rows: int) -> None:
    """Refuses a tokenizer with ids that an embedding of `rows` rows doesn't have, or without
    any."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    if not vocabulary:
        raise CheckpointError("the tokenizer has no tokens", where=where)
    token, largest = max(vocabulary.items(), key=lambda entry: entry[1])
    if largest >= rows:
        raise CheckpointError(
            f"token {token!r:.40} has the id {largest}, but the embedding has {rows} rows",
            where=where,
            remedy="The tokenizer must belong to the model",
        )


def starts_with(tokenizer: Tokenizer, token: str) -> bool:
    """Whether encoding text puts the special `token` before it."""
    try:
        ids = tokenizer.encode("a").ids
    except Exception:  # a vocabulary without this letter and without an unknown token
        return False
    return bool(ids) and ids[0] == tokenizer.token_to_id(token)
