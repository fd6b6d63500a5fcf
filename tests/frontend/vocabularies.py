"""Two small tokenizers of the kinds that cores have, and a contract that fits them.

`byte_level` splits text into bytes and a few merged words; `piece_level` writes spaces as part of
pieces, falls back to byte tokens and strips the first space on decoding. Both have special tokens
and one tag that isn't special.
"""

from __future__ import annotations

import functools

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from helios import contract
from helios.contract import PreparedContract
from helios.frontend.bootstrap import Frontend, assemble
from helios.schema import contract_pb2
from tests.contract.sample import sample_contract

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAG = "<think>"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
CONTEXT_TOKENS = 256
EOS_ID = 2


def _add_markers(tokenizer: Tokenizer) -> bytes:
    tokenizer.add_special_tokens(
        [AddedToken(content, special=True, normalized=False) for content in SPECIAL]
    )
    tokenizer.add_tokens([AddedToken(TAG, special=False, normalized=False)])
    return tokenizer.to_str().encode()


@functools.cache
def byte_level() -> bytes:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w"), ("Ã", "©")]
    tokens = [*SPECIAL, *alphabet, *(left + right for left, right in merges)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _add_markers(tokenizer)


@functools.cache
def piece_level() -> bytes:
    characters = [chr(code) for code in range(0x20, 0x7F)]
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("▁", "w")]
    tokens = [
        *SPECIAL,
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        *characters,
        *(left + right for left, right in merges),
    ]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return _add_markers(tokenizer)


def prepared_contract(sampling: dict[str, float], *, tags: bool = True) -> PreparedContract:
    """A contract for the byte-level vocabulary; `sampling` sets defaults."""
    message = sample_contract()
    tokens = Tokenizer.from_buffer(byte_level()).get_vocab_size()
    message.max_context_tokens = CONTEXT_TOKENS
    message.model.vocabulary.sampled_tokens = tokens
    message.model.input_vocabulary.input_tokens = tokens
    del message.model.input_vocabulary.image_sentinels[:]
    message.model.frontend.eos_ids[:] = [EOS_ID]
    message.model.frontend.template_tokens.eos_token = "<|im_end|>"
    if not tags:
        message.model.frontend.reasoning_parser = contract_pb2.REASONING_PARSER_NONE
        message.model.frontend.ClearField("reasoning_syntax")
    message.defaults.sampling.Clear()
    for name, value in sampling.items():
        setattr(message.defaults.sampling, name, value)
    return contract.decode(message)


def byte_level_frontend(
    template: str | None = CHAT_TEMPLATE,
    *,
    sampling: dict[str, float] | None = None,
    tags: bool = True,
) -> Frontend:
    """`tags` declares the vocabulary's tag as a reasoning delimiter."""
    return assemble(prepared_contract(sampling or {}, tags=tags), byte_level(), template)
