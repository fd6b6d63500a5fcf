"""The recipe of dense decoders with rotary attention and a gated feed-forward.

Llama, SmolLM2, Mistral, Qwen2/2.5 (biases on query, key and value), Qwen3 (norms on query and key
heads); tied or untied heads. Holds these models' semantic metadata and their arithmetic, as calls
of the op layer; how requests are admitted and sampled is `paged_text`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from helios.errors import ContractError
from helios.schema import contract_pb2
from ignition.capture import attention_ops, ops
from ignition.capture.attention_ops import Heads, PageTable, Planes, RotaryEmbedding
from ignition.capture.handles import (
    Activation,
    AttendingRows,
    BufferHandle,
    Matrix,
    RowBinding,
    Rows,
)
from ignition.capture.ops import Role
from ignition.capture.program import ProgramRecorder
from ignition.capture.recorder import Recorder
from ignition.preparation import contract, paged_text
from ignition.preparation.chat_syntax import ChatSyntax
from ignition.preparation.checkpoints.checkpoint import Checkpoint, ModelParameters
from ignition.preparation.checkpoints.rope import inverse_frequencies
from ignition.preparation.extents import Extents
from ignition.preparation.stored_matrix import concatenate
from ignition.preparation.tokenizers.extent import token_extent
from ignition.preparation.weights import WeightSet

NAME = "llama"
SUMMARY = "dense decoders: Llama, SmolLM2, Mistral, Qwen2/2.5, Qwen3"
FAMILIES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


def capture(
    checkpoint: Checkpoint,
    recorder: Recorder,
    weights: WeightSet,
    extents: Extents,
    syntax: ChatSyntax,
) -> contract_pb2.ModelContract:
    """Declares the model's weights and cache, records its programs, returns its contract."""
    parameters = checkpoint.parameters
    if parameters.activation != "silu":
        raise ContractError(
            f"the feed-forward's activation is {parameters.activation}",
            where=checkpoint.family,
            remedy="This recipe knows silu",
        )
    sampled = min(parameters.vocabulary, token_extent(checkpoint.tokenizer_json()))
    model = _DenseDecoder(parameters, sampled, recorder, weights)
    recorded = paged_text.record(recorder, model, extents)
    return contract_pb2.ModelContract(
        version=contract.CONTRACT_VERSION,
        vocabulary=contract.vocabulary(sampled),
        input_vocabulary=contract_pb2.InputVocabulary(input_tokens=parameters.vocabulary),
        cache=contract.paged_cache(
            [plane.name for plane in model.planes],
            recorded.saved_planes,
            page_tokens=extents.page_tokens,
            window_tokens=parameters.sliding_window or 0,
        ),
        graphs=recorded.graphs,
        frontend=contract.text_frontend(
            checkpoint.eos_ids,
            checkpoint.template_tokens,
            syntax,
        ),
        state_views=contract.state_views(extents.pages_per_request, sampled),
    )


@dataclass(frozen=True)
class _Layer:
    attention_norm: BufferHandle
    qkv: Matrix
    qkv_bias: BufferHandle | None
    q_norm: BufferHandle | None
    k_norm: BufferHandle | None
    output: Matrix
    output_bias: BufferHandle | None
    feed_forward_norm: BufferHandle
    gate_up: Matrix
    down: Matrix
    planes: Planes


class _DenseDecoder:
    """The model as `paged_text` asks for it."""

    def __init__(
        self, p: ModelParameters, sampled_tokens: int, recorder: Recorder, weights: WeightSet
    ) -> None:
        self._parameters = p
        self._sampled_tokens = sampled_tokens
        self._heads = Heads(p.heads, p.kv_heads, p.head_dim)
        self._embedding = weights.vocabulary_matrix("embedding")
        self._rotary = RotaryEmbedding(
            weights.table("inverse_frequency", inverse_frequencies(p)), attention_factor=1.0
        )
        self._layers = [
            _declare_layer(index, p, self._heads, recorder, weights) for index in range(p.layers)
        ]
        self._final_norm = weights.vector("final_norm", ["final_norm"])
        self._head = self._embedding if p.tied_embeddings else weights.vocabulary_matrix("head")

    @property
    def vocabulary_tokens(self) -> int:
        return self._parameters.vocabulary

    @property
    def sampled_tokens(self) -> int:
        return self._sampled_tokens

    @property
    def planes(self) -> list[BufferHandle]:
        """All cache planes, layer by layer."""
        pairs = [layer.planes for layer in self._layers]
        return [plane for pair in pairs for plane in (pair.keys, pair.values)]

    def cached(
        self, program: ProgramRecorder, tokens: BufferHandle, at: RowBinding, table: PageTable
    ) -> AttendingRows:
        x = ops.embed(program, "x", at.rows, tokens, self._embedding)
        for layer in self._layers[:-1]:
            self._finish_layer(program, self._cache(program, at, table, layer, x), table, layer)
        return self._cache(program, at, table, self._layers[-1], x)

    def finish(self, program: ProgramRecorder, rows: AttendingRows, table: PageTable) -> None:
        self._finish_layer(program, rows, table, self._layers[-1])

    def head(
        self, program: ProgramRecorder, rows: Rows, x: Activation, logits: BufferHandle
    ) -> None:
        epsilon = self._parameters.rms_epsilon
        normed = ops.normed(
            program, "head_in", rows, x, self._final_norm, epsilon, self._head, Role.HEAD
        )
        ops.linear_into(program, rows, normed, self._head, logits)

    def _cache(
        self,
        program: ProgramRecorder,
        at: RowBinding,
        table: PageTable,
        layer: _Layer,
        x: Activation,
    ) -> AttendingRows:
        """The layer's keys and values go to its cache, queries are ready."""
        epsilon = self._parameters.rms_epsilon
        normed = ops.normed(
            program, "attention_in", at.rows, x, layer.attention_norm, epsilon, layer.qkv, Role.QKV
        )
        qkv = ops.linear(program, "qkv", at.rows, normed, layer.qkv, layer.qkv_bias)
        queries = attention_ops.rope_and_cache(
            program,
            at,
            qkv,
            self._heads,
            table,
            layer.planes,
            self._rotary,
            q_norm=layer.q_norm,
            k_norm=layer.k_norm,
            epsilon=epsilon,
        )
        return AttendingRows(at, x, queries)

    def _finish_layer(
        self, program: ProgramRecorder, rows: AttendingRows, table: PageTable, layer: _Layer
    ) -> None:
        """Attention and feed-forward."""
        mixed = attention_ops.attention(
            program,
            "attention_out",
            rows.at,
            rows.queries,
            self._heads,
            table,
            layer.planes,
            window=self._parameters.sliding_window or 0,
            scale=1 / sqrt(self._heads.width),
            form=ops.input_format(layer.output, Role.INNER),
        )
        ops.linear_add(program, rows.at.rows, mixed, layer.output, rows.x, layer.output_bias)
        self._feed_forward(program, rows.at.rows, layer, rows.x)

    def _feed_forward(
        self, program: ProgramRecorder, rows: Rows, layer: _Layer, x: Activation
    ) -> None:
        normed = ops.normed(
            program,
            "feed_forward_in",
            rows,
            x,
            layer.feed_forward_norm,
            self._parameters.rms_epsilon,
            layer.gate_up,
            Role.INNER,
        )
        gated = ops.linear_silu_mul(
            program,
            "gated",
            rows,
            normed,
            layer.gate_up,
            ops.input_format(layer.down, Role.INNER),
        )
        ops.linear_add(program, rows, gated, layer.down, x)


def _declare_layer(
    index: int, parameters: ModelParameters, heads: Heads, recorder: Recorder, weights: WeightSet
) -> _Layer:
    prefix = f"layers.{index}"

    def matrix(name: str, *parts: str, run: int | None = None) -> Matrix:
        tensors = [f"{prefix}.{part}" for part in parts or [name]]
        return weights.matrix(f"{prefix}.{name}", tensors, concatenate, run=run)

    def vector(name: str, *parts: str) -> BufferHandle:
        return weights.vector(f"{prefix}.{name}", [f"{prefix}.{p}" for p in parts or [name]])

    qkv = matrix("qkv", "query", "key", "value")
    biases = parameters.attention_biases
    norms = parameters.query_key_norms
    return _Layer(
        attention_norm=vector("attention_norm"),
        qkv=qkv,
        qkv_bias=vector("qkv_bias", "query_bias", "key_bias", "value_bias") if biases else None,
        q_norm=vector("query_norm") if norms else None,
        k_norm=vector("key_norm") if norms else None,
        # Attention writes the query heads of a key head at a time.
        output=matrix("output", run=parameters.heads // parameters.kv_heads * parameters.head_dim),
        output_bias=vector("output_bias") if parameters.output_bias else None,
        feed_forward_norm=vector("feed_forward_norm"),
        gate_up=weights.gated_matrix(f"{prefix}.gate_up", f"{prefix}.gate", f"{prefix}.up"),
        down=matrix("down"),
        # Products of int8 blocks lose more than bf16 queries, keys, weights and values do.
        planes=attention_ops.declare_planes(recorder, index, heads, paired=qkv.is_quantised),
    )
