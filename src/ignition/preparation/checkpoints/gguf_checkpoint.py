"""Opens a GGUF checkpoint: metadata into parameters, tensors into canonical order.

`GgufCheckpoint` checks the parameters and every tensor's shape when it is made; weights stay
mapped and bit-exact. The container is `gguf_file`'s, the tokenizer `gguf_tokenizer`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ignition.preparation.checkpoints.checkpoint import (
    MAX_CONTEXT_TOKENS,
    MAX_FACTOR,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_WIDTH,
    GenerationDefaults,
    LinearRopeScaling,
    ModelParameters,
    RopeFrequencyDivisors,
    RopeScaling,
    SourceFile,
    TemplateTokens,
)
from ignition.preparation.checkpoints.files import describe_sources
from ignition.preparation.checkpoints.gguf_file import GgufFile, read_gguf
from ignition.preparation.checkpoints.tensor_names import check_tensors, gguf_name, tensor_shapes
from ignition.preparation.errors import CheckpointError
from ignition.preparation.fields import Fields
from ignition.preparation.stored_matrix import StoredMatrix
from ignition.preparation.tokenizers.gguf_metadata import read_tokenizer_metadata
from ignition.preparation.tokenizers.gguf_tokenizer import build_tokenizer_json
from ignition.preparation.tokenizers.tokenizer_file import load_tokenizer

# Mistral's files say llama.
_FAMILIES: Final = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_ROPE_DIVISORS: Final = "rope_freqs.weight"


class GgufCheckpoint:
    """One GGUF file; implements `Checkpoint`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        file = read_gguf(path)
        self._tensors = file.tensors
        self._fields = Fields(file.metadata, path.name)
        splits = self._fields.integer_or_none("split.count", 0, 1 << 16)
        if splits is not None and splits > 1:
            raise self._fields.refusal(
                "split.count", f"is {splits}", "Join the parts with llama.cpp's gguf-split --merge"
            )
        architecture = self._fields.text("general.architecture")
        if architecture not in _FAMILIES:
            raise self._fields.refusal(
                "general.architecture",
                f"is {architecture!r}",
                f"Supported are {', '.join(_FAMILIES)}",
            )
        self.family = _FAMILIES[architecture]
        self._interleaved_heads = architecture == "llama"
        self.parameters = _read_parameters(self._fields, file, architecture)
        shapes = tensor_shapes(self.parameters)
        expected = {gguf_name(name): shape for name, shape in shapes.items()}
        found = {name: tensor.shape for name, tensor in file.tensors.items()}
        check_tensors(expected, found, {_ROPE_DIVISORS}, path.name)
        self._tokenizer = read_tokenizer_metadata(self._fields)
        tokens, rows = len(self._tokenizer.tokens), self.parameters.vocabulary
        if tokens > rows:
            raise self._fields.refusal(
                "tokenizer.ggml.tokens",
                f"lists {tokens} tokens, but the embedding has {rows} rows",
                "The tokenizer must belong to the model",
            )
        self._tokenizer_json = build_tokenizer_json(self._tokenizer)
        load_tokenizer(self._tokenizer_json, path.name, rows)

    def matrix(self, name: str) -> StoredMatrix:
        """See `Checkpoint.matrix`."""
        matrix = self._tensors[gguf_name(name)].as_matrix()
        order = self._row_order(name, matrix.shape[0])
        return matrix if order is None else matrix.rows(order)

    def vector(self, name: str) -> NDArray[np.float32]:
        """See `Checkpoint.vector`."""
        values = self._tensors[gguf_name(name)].as_matrix().dequantise().reshape(-1)
        order = self._row_order(name, values.shape[0])
        return values if order is None else values[order]

    def _row_order(self, name: str, rows: int) -> NDArray[np.intp] | None:
        """The order of stored rows that gives split-half heads, where they are interleaved."""
        part = name.rpartition(".")[2]
        if not self._interleaved_heads or part not in ("query", "key", "query_bias", "key_bias"):
            return None
        # Stored row (head, pair, half) is our row (head, half, pair).
        stored = np.arange(rows).reshape(-1, self.parameters.head_dim // 2, 2)
        return stored.transpose(0, 2, 1).reshape(rows)

    def tokenizer_json(self) -> bytes:
        """See `Checkpoint.tokenizer_json`."""
        return self._tokenizer_json

    def chat_template(self) -> str | None:
        """See `Checkpoint.chat_template`."""
        return self._fields.text_or_none("tokenizer.chat_template")

    @cached_property
    def eos_ids(self) -> tuple[int, ...]:
        """See `Checkpoint.eos_ids`: the ends of sequence, of turn and of message."""
        metadata = self._tokenizer
        ids = {metadata.special_ids.get(name) for name in ("eos", "eot", "eom")}
        known = tuple(sorted(token for token in ids if token is not None))
        if not known:
            raise self._fields.refusal("tokenizer.ggml.eos_token_id", "is missing")
        return known

    @cached_property
    def template_tokens(self) -> TemplateTokens:
        """See `Checkpoint.template_tokens`."""
        metadata = self._tokenizer
        return TemplateTokens(
            bos_token=metadata.special_text("bos"),
            eos_token=metadata.special_text("eos"),
            pad_token=metadata.special_text("padding"),
            unk_token=metadata.special_text("unknown"),
            add_bos_token=metadata.adds_bos,
        )

    @cached_property
    def generation_defaults(self) -> GenerationDefaults:
        """See `Checkpoint.generation_defaults`: the file's recommended sampling."""
        fields, prefix = self._fields, "general.sampling."
        return GenerationDefaults(
            temperature=fields.number_or_none(f"{prefix}temp", 0.0, 100.0),
            top_k=fields.integer_or_none(f"{prefix}top_k", 0, 1 << 30),
            top_p=fields.number_or_none(f"{prefix}top_p", 0.0, 1.0),
            min_p=fields.number_or_none(f"{prefix}min_p", 0.0, 1.0),
            repetition_penalty=fields.number_or_none(f"{prefix}penalty_repeat", 0.01, 100.0),
        )

    @cached_property
    def sources(self) -> tuple[SourceFile, ...]:
        """See `Checkpoint.sources`."""
        return describe_sources([self._path])


def _read_parameters(fields: Fields, file: GgufFile, architecture: str) -> ModelParameters:
    def key(name: str) -> str:
        return f"{architecture}.{name}"

    experts = fields.integer_or_none(key("expert_count"), 0, MAX_WIDTH)
    if experts:
        raise fields.refusal(
            key("expert_count"), f"is {experts}", "Only dense models are supported"
        )
    hidden = fields.integer(key("embedding_length"), 1, MAX_WIDTH)
    heads = fields.integer(key("attention.head_count"), 1, MAX_HEADS)
    kv_heads = fields.integer_or_none(key("attention.head_count_kv"), 1, MAX_HEADS)
    if kv_heads is None:
        kv_heads = heads
    if heads % kv_heads:
        raise fields.refusal(
            key("attention.head_count_kv"), f"is {kv_heads}, no divisor of {heads} heads"
        )
    head_dim = _read_head_dim(fields, key, hidden, heads)
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise CheckpointError("tensor `token_embd.weight` is missing", where=fields.where)
    window = fields.integer_or_none(key("attention.sliding_window"), 0, MAX_CONTEXT_TOKENS)
    return ModelParameters(
        vocabulary=embedding.shape[0],
        hidden=hidden,
        layers=fields.integer(key("block_count"), 1, MAX_LAYERS),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=fields.integer(key("feed_forward_length"), 1, MAX_WIDTH),
        rms_epsilon=fields.number(key("attention.layer_norm_rms_epsilon"), 1e-12, 1.0),
        rope_theta=fields.number_or_none(key("rope.freq_base"), 1.0, MAX_FACTOR) or 10000.0,
        rope_scaling=_read_rope_scaling(fields, key, file, head_dim),
        context_tokens=fields.integer(key("context_length"), 1, MAX_CONTEXT_TOKENS),
        sliding_window=window or None,
        # The metadata doesn't mention biases and tied heads; the tensors do.
        attention_biases="blk.0.attn_q.bias" in file.tensors,
        output_bias="blk.0.attn_output.bias" in file.tensors,
        query_key_norms=architecture == "qwen3",
        tied_embeddings="output.weight" not in file.tensors,
        activation="silu",
    )


def _read_head_dim(fields: Fields, key: Callable[[str], str], hidden: int, heads: int) -> int:
    head_dim = fields.integer_or_none(key("attention.key_length"), 2, MAX_WIDTH)
    if head_dim is None:
        head_dim = hidden // heads
    for name in ("attention.value_length", "rope.dimension_count"):
        other = fields.integer_or_none(key(name), 1, MAX_WIDTH)
        if other not in (None, head_dim):
            raise fields.refusal(
                key(name), f"is {other}, not the {head_dim} of a head, which isn't supported"
            )
    if head_dim % 2 or head_dim < 2:
        raise fields.refusal(
            key("attention.key_length"), f"is {head_dim}; rope rotates pairs, so it must be even"
        )
    return head_dim


def _read_rope_scaling(
    fields: Fields, key: Callable[[str], str], file: GgufFile, head_dim: int
) -> RopeScaling | None:
    kind = fields.text_or_none(key("rope.scaling.type")) or "none"
    if kind not in ("none", "linear"):
        raise fields.refusal(
            key("rope.scaling.type"), f"is {kind!r}", "Supported are none and linear"
        )
    # Old files have the factor alone.
    factor = fields.number_or_none(key("rope.scale_linear"), 0.0, MAX_FACTOR)
    if kind == "linear":
        factor = fields.number(key("rope.scaling.factor"), 1e-9, MAX_FACTOR)
    linear = LinearRopeScaling(factor) if factor not in (None, 0.0, 1.0) else None
    tensor = file.tensors.get(_ROPE_DIVISORS)
    if tensor is None:
        return linear
    divisors = tensor.as_matrix().dequantise()
    positive = np.isfinite(divisors).all() and (divisors > 0).all()
    if tensor.shape != (head_dim // 2,) or not positive or linear is not None:
        raise CheckpointError(
            f"tensor `{_ROPE_DIVISORS}` must hold {head_dim // 2} positive divisors, and no other "
            "rope scaling may be set",
            where=fields.where,
        )
    return RopeFrequencyDivisors(tuple(float(divisor) for divisor in divisors[0]))
