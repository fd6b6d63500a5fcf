"""What a recipe sees of a checkpoint, whatever its file format.

Typed parameters, the `Checkpoint` protocol, and one canonical naming of tensors. The readers
(`huggingface`, `gguf_checkpoint`) translate into these words and check that every tensor has the
shape that the parameters ask for; recipes use nothing else.

Canonical tensor names; V = vocabulary, H = hidden, I = intermediate, D = head_dim, Hq and Hkv =
heads. Matrices are [outputs, inputs]. Rows of query and key are in the order of split-half rope
(the first D/2 rows of a head rotate with its last D/2).

| name | shape | present |
|---|---|---|
| `embedding` | [V, H] | always |
| `head` | [V, H] | unless `tied_embeddings` |
| `final_norm` | H | always |
| `layers.N.attention_norm`, `layers.N.feed_forward_norm` | H | always |
| `layers.N.query` | [Hq D, H] | always |
| `layers.N.key`, `layers.N.value` | [Hkv D, H] | always |
| `layers.N.output` | [H, Hq D] | always |
| `layers.N.gate`, `layers.N.up` | [I, H] | always |
| `layers.N.down` | [H, I] | always |
| `layers.N.query_bias`, `.key_bias`, `.value_bias` | rows of the matrix | `attention_biases` |
| `layers.N.output_bias` | H | `output_bias` |
| `layers.N.query_norm`, `layers.N.key_norm` | D | `query_key_norms` |
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ignition.preparation.stored_matrix import StoredMatrix

# Bounds of what a checkpoint may ask for; beyond them it is damaged or hostile.
MAX_WIDTH: Final = 1 << 20
MAX_VOCABULARY: Final = 1 << 22
MAX_LAYERS: Final = 1 << 10
MAX_HEADS: Final = 1 << 12
MAX_CONTEXT_TOKENS: Final = (1 << 31) - 1
MAX_FACTOR: Final = 1e9


@dataclass(frozen=True)
class LinearRopeScaling:
    """Every frequency divided by `factor`."""

    factor: float


@dataclass(frozen=True)
class Llama3RopeScaling:
    """Llama 3's: long wavelengths divided by `factor`, short ones kept, a ramp between."""

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_context_tokens: int


@dataclass(frozen=True)
class RopeFrequencyDivisors:
    """A divisor for each of the D/2 frequencies, as GGUF files state Llama 3's scaling."""

    divisors: tuple[float, ...]


RopeScaling = LinearRopeScaling | Llama3RopeScaling | RopeFrequencyDivisors


@dataclass(frozen=True)
class ModelParameters:
    """The dimensions and variants of a dense decoder model."""

    vocabulary: int  # rows of the embedding
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    rms_epsilon: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    context_tokens: int
    sliding_window: int | None  # tokens that a position sees, itself included; None: all
    attention_biases: bool
    output_bias: bool
    query_key_norms: bool
    tied_embeddings: bool
    activation: str  # of the gated feed-forward: "silu"


@dataclass(frozen=True)
class TemplateTokens:
    """The tokens that a chat template may name, and whether plain text starts with BOS."""

    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    unk_token: str | None
    add_bos_token: bool


@dataclass(frozen=True)
class GenerationDefaults:
    """What a checkpoint or its model card recommends; None where it says nothing."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_output_tokens: int | None = None

    def over(self, other: GenerationDefaults) -> GenerationDefaults:
        """These recommendations, and `other`'s where these say nothing."""
        own = {name: value for name, value in asdict(self).items() if value is not None}
        return replace(other, **own)


NO_RECOMMENDATIONS: Final = GenerationDefaults()


@dataclass(frozen=True)
class SourceFile:
    """A file that the checkpoint was read from; `sha256` is the digest's 32 bytes."""

    name: str
    nbytes: int
    sha256: bytes


class Checkpoint(Protocol):
    """A checkpoint that has been opened and whose parameters are checked.

    Every member raises CheckpointError for what is damaged, contradictory or unsupported.
    """

    @property
    def family(self) -> str:
        """The architecture as transformers names it (`LlamaForCausalLM`), for either format."""
        ...

    @property
    def parameters(self) -> ModelParameters:
        """Dimensions and variants."""
        ...

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Tokens that end an answer, ascending; never empty."""
        ...

    @property
    def template_tokens(self) -> TemplateTokens:
        """Tokens that the chat template and the tokenizer use."""
        ...

    @property
    def generation_defaults(self) -> GenerationDefaults:
        """Recommended sampling."""
        ...

    @property
    def sources(self) -> tuple[SourceFile, ...]:
        """The files that were read, by name; hashes them on first use."""
        ...

    def matrix(self, name: str) -> StoredMatrix:
        """A weight matrix by canonical name, as stored; its bytes may be a mapped file's."""
        ...

    def vector(self, name: str) -> NDArray[np.float32]:
        """A norm weight or bias by canonical name, widened to float32."""
        ...

    def tokenizer_json(self) -> bytes:
        """The tokenizer as a Hugging Face `tokenizer.json`."""
        ...

    def chat_template(self) -> str | None:
        """The Jinja chat template, if the checkpoint has one."""
        ...
