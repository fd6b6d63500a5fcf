"""Reads `tokenizer.ggml.*` metadata into a checked, typed form.

Everything that is untrusted is checked here; `gguf_tokenizer` builds from the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ignition.preparation.fields import Fields

_PREFIX: Final = "tokenizer.ggml."
# A token may not be longer: it bounds the work of splitting it.
_MAX_TOKEN_LENGTH: Final = 1024
_SPECIALS: Final = ("bos", "eos", "eot", "eom", "unknown", "padding")
# Pre-tokenizers whose models start text with BOS unless the file says otherwise.
_BOS_BY_DEFAULT: Final = ("llama-bpe",)


class TokenKind(IntEnum):
    """What a token is for, as GGUF numbers it."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class TokenizerMetadata:
    """A tokenizer as a GGUF file describes it.

    `model` is `gpt2` (byte-level BPE with `merges`) or `llama` (SentencePiece BPE with `scores`);
    `pre` names the pre-tokenizer of the first. `special_ids` has those that the file states.
    """

    model: str
    pre: str
    tokens: tuple[str, ...]
    kinds: tuple[TokenKind, ...]
    merges: tuple[tuple[str, str], ...]
    scores: tuple[float, ...]
    special_ids: Mapping[str, int]
    adds_bos: bool
    adds_space_prefix: bool
    where: str

    def special_text(self, name: str) -> str | None:
        """The text of the token `bos`, `eos`, `eot`, `eom`, `unknown` or `padding`."""
        token = self.special_ids.get(name)
        return None if token is None else self.tokens[token]


def read_tokenizer_metadata(fields: Fields) -> TokenizerMetadata:
    """Reads and checks the metadata; raises CheckpointError that names the field."""
    model = fields.text(f"{_PREFIX}model")
    if model not in ("gpt2", "llama"):
        raise fields.refusal(f"{_PREFIX}model", f"is {model!r}", "Supported are gpt2 and llama")
    tokens = _texts(fields, "tokens")
    if len(set(tokens)) != len(tokens):
        raise fields.refusal(f"{_PREFIX}tokens", "holds a token twice")
    if max(map(len, tokens), default=0) > _MAX_TOKEN_LENGTH:
        raise fields.refusal(
            f"{_PREFIX}tokens", f"holds a token of more than {_MAX_TOKEN_LENGTH} characters"
        )
    if fields.flag_or_none(f"{_PREFIX}add_eos_token"):
        raise fields.refusal(f"{_PREFIX}add_eos_token", "is true, which isn't supported")
    special_ids = {}
    for name in _SPECIALS:
        token = fields.integer_or_none(f"{_PREFIX}{name}_token_id", 0, len(tokens) - 1)
        if token is not None:
            special_ids[name] = token
    pre = fields.text(f"{_PREFIX}pre") if model == "gpt2" else ""
    adds_bos = fields.flag_or_none(f"{_PREFIX}add_bos_token")
    if adds_bos is None:
        adds_bos = model == "llama" or pre in _BOS_BY_DEFAULT
    if adds_bos and "bos" not in special_ids:
        raise fields.refusal(f"{_PREFIX}bos_token_id", "is missing, but text starts with BOS")
    space_prefix = fields.flag_or_none(f"{_PREFIX}add_space_prefix")
    return TokenizerMetadata(
        model=model,
        pre=pre,
        tokens=tokens,
        kinds=_kinds(fields, len(tokens)),
        merges=_merges(fields, set(tokens)) if model == "gpt2" else (),
        scores=_scores(fields, len(tokens)) if model == "llama" else (),
        special_ids=special_ids,
        adds_bos=adds_bos,
        adds_space_prefix=space_prefix is not False,
        where=fields.where,
    )


def _texts(fields: Fields, name: str) -> tuple[str, ...]:
    value = fields.values.get(f"{_PREFIX}{name}")
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise fields.refusal(f"{_PREFIX}{name}", "must be an array of strings")
    return tuple(value)


def _numbers(fields: Fields, name: str, count: int) -> NDArray[np.generic]:
    value = fields.values.get(f"{_PREFIX}{name}")
    if not isinstance(value, np.ndarray) or value.size != count:
        raise fields.refusal(f"{_PREFIX}{name}", f"must be an array of {count} numbers")
    return value


def _kinds(fields: Fields, count: int) -> tuple[TokenKind, ...]:
    numbers = _numbers(fields, "token_type", count).tolist()
    kinds = {int(kind): kind for kind in TokenKind}
    unknown = sorted(set(numbers) - set(kinds))
    if unknown:
        raise fields.refusal(f"{_PREFIX}token_type", f"holds {unknown[0]}, no token type")
    return tuple(kinds[number] for number in numbers)


def _scores(fields: Fields, count: int) -> tuple[float, ...]:
    scores = _numbers(fields, "scores", count)
    if scores.dtype.kind != "f" or not np.isfinite(scores).all():
        raise fields.refusal(f"{_PREFIX}scores", "must hold finite numbers")
    return tuple(float(score) for score in scores)


def _merges(fields: Fields, tokens: set[str]) -> tuple[tuple[str, str], ...]:
    merges = []
    for text in _texts(fields, "merges"):
        # The first part may itself be a space.
        at = text.find(" ", 1)
        left, right = text[:at], text[at + 1 :]
        if at < 0 or not {left, right, left + right} <= tokens:
            raise fields.refusal(
                f"{_PREFIX}merges", f"holds {text!r}, which doesn't join two tokens to a third"
            )
        merges.append((left, right))
    return tuple(merges)
