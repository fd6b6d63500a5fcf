"""Builds a Hugging Face tokenizer.json from a GGUF file's tokenizer metadata.

A GGUF file names its pre-tokenizer instead of describing it; the table here says what each name
means. A name that isn't in it is refused, since a tokenizer that is nearly right gives a model
that is nearly right. The bytes depend on the metadata and the tokenizers version alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from ignition.preparation.errors import CheckpointError
from ignition.preparation.tokenizers.gguf_metadata import TokenizerMetadata, TokenKind
from ignition.preparation.tokenizers.sentencepiece import SPACE, merges_from_scores


@dataclass(frozen=True)
class _ByteLevelRules:
    """What comes before byte-level BPE. `whole_words`: a word in the vocabulary isn't split."""

    pre_tokenizer: Callable[[], pre_tokenizers.PreTokenizer]
    normalizer: Callable[[], normalizers.Normalizer] | None = None
    whole_words: bool = False


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True)


def _smollm() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


def _words_with_numbers(longest_number: int) -> Callable[[], pre_tokenizers.PreTokenizer]:
    """The split of tiktoken's cl100k family: contractions, words, numbers, signs, white space."""
    number = r"\p{N}" if longest_number == 1 else rf"\p{{N}}{{1,{longest_number}}}"
    pattern = "|".join(
        [
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
            r"[^\r\n\p{L}\p{N}]?\p{L}+",
            number,
            r" ?[^\s\p{L}\p{N}]+[\r\n]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    )

    def build() -> pre_tokenizers.PreTokenizer:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
                pre_tokenizers.ByteLevel(
                    add_prefix_space=False, trim_offsets=True, use_regex=False
                ),
            ]
        )

    return build


_BYTE_LEVEL: Final = {
    "gpt-2": _ByteLevelRules(_gpt2),
    "smollm": _ByteLevelRules(_smollm),
    "llama-bpe": _ByteLevelRules(_words_with_numbers(3), whole_words=True),
    "qwen2": _ByteLevelRules(_words_with_numbers(1), normalizer=normalizers.NFC),
}


def build_tokenizer_json(metadata: TokenizerMetadata) -> bytes:
    """The tokenizer.json; raises CheckpointError for a pre-tokenizer that isn't known."""
    try:
        tokenizer = _byte_level(metadata) if metadata.model == "gpt2" else _sentencepiece(metadata)
        _add_special_tokens(tokenizer, metadata)
    # The package raises plain Exception for whatever it can't build.
    except Exception as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"describes a tokenizer that can't be built: {error}", where=metadata.where
        ) from error
    return tokenizer.to_str().encode()


def _byte_level(metadata: TokenizerMetadata) -> Tokenizer:
    rules = _BYTE_LEVEL.get(metadata.pre)
    if rules is None:
        raise CheckpointError(
            f"`tokenizer.ggml.pre` is {metadata.pre!r}",
            where=metadata.where,
            remedy=f"Supported are {', '.join(_BYTE_LEVEL)}; else use the Hugging Face folder",
        )
    vocabulary = {token: index for index, token in enumerate(metadata.tokens)}
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=list(metadata.merges), ignore_merges=rules.whole_words)
    )
    if rules.normalizer is not None:
        tokenizer.normalizer = rules.normalizer()
    tokenizer.pre_tokenizer = rules.pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(metadata: TokenizerMetadata) -> Tokenizer:
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(metadata.tokens)},
            merges=merges_from_scores(metadata),
            unk_token=metadata.special_text("unknown"),
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE)]
    pieces: list[decoders.Decoder] = [
        decoders.Replace(SPACE, " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if metadata.adds_space_prefix:
        steps.insert(0, normalizers.Prepend(SPACE))
        pieces.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(pieces)
    return tokenizer


def _add_special_tokens(tokenizer: Tokenizer, metadata: TokenizerMetadata) -> None:
    """Control tokens are special; user-defined ones are matched whole but are plain text."""
    special = {TokenKind.CONTROL, TokenKind.UNKNOWN}
    # All in one call, in the order of their ids: the library goes through every added token after
    # each call.
    tokenizer.add_tokens(
        [
            AddedToken(token, normalized=False, special=kind in special)
            for token, kind in zip(metadata.tokens, metadata.kinds, strict=True)
            if kind in special or kind is TokenKind.USER_DEFINED
        ]
    )
    bos = metadata.special_text("bos")
    if metadata.adds_bos and bos is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[bos, "$A"],
            pair=[bos, "$A", f"{bos}:1", "$B:1"],
            special_tokens=[(bos, metadata.special_ids["bos"])],
        )
