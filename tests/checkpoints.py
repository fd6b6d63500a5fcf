"""Writes tiny random checkpoints of every variant that the recipes know, in both file formats.

`write_huggingface` makes a folder as `save_pretrained` would, `write_gguf` a file as llama.cpp's
converter would; with the same variant and seed they hold the same weights. The numbers come from
a seeded numpy generator and are scaled so that logits differ clearly between tokens. Needs no
torch. Use them from any test: `from tests.checkpoints import VARIANTS, write_huggingface`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIAL_TOKENS: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# What the byte-level vocabulary has besides 256 bytes: prefixes of these words, in order.
_WORDS: Final = (
    *("Ġthe", "Ġand", "Ġis", "user", "assistant", "system", "Ġhello", "Ġworld", "Ġcapital"),
    *("ĠFrance", "Ġof", "Ġanswer", "Ġquestion", "import", "Ġreturn", "Ġnumber", "ing", "tion"),
)
TOKENS: Final = 331  # not a multiple of 16, so that the head's last tile is partly padding
CHAT_TEMPLATE: Final = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True)
class Variant:
    """One kind of model at a tiny size."""

    name: str
    architecture: str
    gguf_architecture: str
    vocabulary: int = TOKENS
    hidden: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    intermediate: int = 96
    tied: bool = False
    biases: bool = False
    norms: bool = False
    sliding_window: int | None = None
    rope_theta: float = 10000.0
    llama3_scaling: bool = False
    context: int = 512


VARIANTS: Final = {
    variant.name: variant
    for variant in (
        Variant("llama", "LlamaForCausalLM", "llama", rope_theta=500000.0, llama3_scaling=True),
        Variant("smollm", "LlamaForCausalLM", "llama", tied=True, layers=3, rope_theta=1e5),
        Variant("mistral", "MistralForCausalLM", "llama", sliding_window=24, intermediate=128),
        # As Qwen's, the embedding has more rows than the tokenizer has tokens.
        Variant("qwen2", "Qwen2ForCausalLM", "qwen2", biases=True, tied=True, vocabulary=352),
        Variant("qwen3", "Qwen3ForCausalLM", "qwen3", norms=True, head_dim=32, rope_theta=1e6),
    )
}

Tensors = dict[str, NDArray[np.float32]]


def weights(variant: Variant, seed: int = 0) -> Tensors:
    """The variant's tensors under Hugging Face names; float32 values that bf16 holds exactly."""
    random = np.random.default_rng(seed)

    def matrix(outputs: int, inputs: int, scale: float) -> NDArray[np.float32]:
        values = random.standard_normal((outputs, inputs)) * scale / np.sqrt(inputs)
        return truncate_to_bf16(values)

    def vector(width: int, centre: float) -> NDArray[np.float32]:
        return truncate_to_bf16(centre + 0.2 * random.standard_normal(width))

    v = variant
    tensors = {
        "model.embed_tokens.weight": matrix(v.vocabulary, v.hidden, 3.0),
        "model.norm.weight": vector(v.hidden, 1.0),
    }
    if not v.tied:
        tensors["lm_head.weight"] = matrix(v.vocabulary, v.hidden, 3.0)
    for layer in range(v.layers):
        at = f"model.layers.{layer}."
        for name, outputs in (("q", v.heads), ("k", v.kv_heads), ("v", v.kv_heads)):
            rows = outputs * v.head_dim
            tensors[f"{at}self_attn.{name}_proj.weight"] = matrix(rows, v.hidden, 1.5)
            if v.biases:
                tensors[f"{at}self_attn.{name}_proj.bias"] = vector(rows, 0.0)
        tensors[f"{at}self_attn.o_proj.weight"] = matrix(v.hidden, v.heads * v.head_dim, 1.0)
        if v.norms:
            tensors[f"{at}self_attn.q_norm.weight"] = vector(v.head_dim, 1.0)
            tensors[f"{at}self_attn.k_norm.weight"] = vector(v.head_dim, 1.0)
        tensors[f"{at}mlp.gate_proj.weight"] = matrix(v.intermediate, v.hidden, 1.5)
        tensors[f"{at}mlp.up_proj.weight"] = matrix(v.intermediate, v.hidden, 1.5)
        tensors[f"{at}mlp.down_proj.weight"] = matrix(v.hidden, v.intermediate, 1.0)
        tensors[f"{at}input_layernorm.weight"] = vector(v.hidden, 1.0)
        tensors[f"{at}post_attention_layernorm.weight"] = vector(v.hidden, 1.0)
    return tensors


def truncate_to_bf16(values: NDArray[Any]) -> NDArray[np.float32]:
    """Drops the bits that bf16 doesn't hold."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)


# ---------------------------------------------------------------- Hugging Face folder


def write_huggingface(
    folder: Path,
    variant: Variant | str,
    *,
    seed: int = 0,
    dtype: str = "BF16",
    shards: int = 1,
    rope_parameters: bool = False,
) -> Path:
    """Writes a checkpoint folder and returns it.

    `dtype` is BF16, F16 or F32; more than one shard adds an index; `rope_parameters` writes the
    configuration as transformers 5 does.
    """
    v = VARIANTS[variant] if isinstance(variant, str) else variant
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", configuration(v, rope_parameters=rope_parameters))
    _write_json(
        folder / "generation_config.json",
        {"bos_token_id": 1, "eos_token_id": [2, 0], "temperature": 0.7, "top_p": 0.9},
    )
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|im_start|>",
            "eos_token": {"content": "<|im_end|>", "special": True},
            "pad_token": "<|im_end|>",
            "unk_token": "<|endoftext|>",
            "add_bos_token": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    tokenizer().save(str(folder / "tokenizer.json"))
    tensors = weights(v, seed)
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, dtype)
        return folder
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        part = dict(list(tensors.items())[shard::shards])
        name = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        write_safetensors(folder / name, part, dtype)
        weight_map |= dict.fromkeys(part, name)
    _write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})
    return folder


def configuration(variant: Variant, *, rope_parameters: bool = False) -> dict[str, Any]:
    """The variant's config.json."""
    v = variant
    rope: dict[str, Any] = {"rope_type": "default"}
    if v.llama3_scaling:
        rope = {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 128,
        }
    config: dict[str, Any] = {
        "architectures": [v.architecture],
        "model_type": v.architecture.removesuffix("ForCausalLM").lower(),
        "vocab_size": v.vocabulary,
        "hidden_size": v.hidden,
        "num_hidden_layers": v.layers,
        "num_attention_heads": v.heads,
        "num_key_value_heads": v.kv_heads,
        "head_dim": None if v.architecture == "MistralForCausalLM" else v.head_dim,
        "intermediate_size": v.intermediate,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": v.context,
        "hidden_act": "silu",
        "tie_word_embeddings": v.tied,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
    }
    if v.architecture in ("LlamaForCausalLM", "Qwen3ForCausalLM"):
        config["attention_bias"] = False
    if v.architecture != "LlamaForCausalLM":
        config["sliding_window"] = v.sliding_window
    if v.architecture.startswith("Qwen"):
        config |= {"use_sliding_window": False, "max_window_layers": v.layers}
    if v.head_dim * v.heads == v.hidden and v.architecture == "Qwen2ForCausalLM":
        del config["head_dim"]
    if rope_parameters:
        config["rope_parameters"] = rope | {"rope_theta": v.rope_theta}
    else:
        config |= {
            "rope_theta": v.rope_theta,
            "rope_scaling": rope if v.llama3_scaling else None,
        }
    return config


def write_safetensors(path: Path, tensors: Mapping[str, NDArray[np.float32]], dtype: str) -> None:
    """Writes one safetensors file; float32 values are converted to `dtype` (BF16, F16, F32)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, values in tensors.items():
        data = _ELEMENTS[dtype](values)
        header[name] = {
            "dtype": dtype,
            "shape": list(values.shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


_ELEMENTS: Final[dict[str, Callable[[NDArray[np.float32]], bytes]]] = {
    "F32": lambda values: values.astype("<f4").tobytes(),
    "F16": lambda values: values.astype("<f2").tobytes(),
    "BF16": lambda values: (values.view(np.uint32) >> 16).astype("<u2").tobytes(),
}


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


# ---------------------------------------------------------------- tokenizer


def vocabulary_and_merges() -> tuple[list[str], list[tuple[str, str]]]:
    """A byte-level BPE vocabulary of `TOKENS` tokens: specials, 256 bytes, prefixes of words."""
    tokens = [*SPECIAL_TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    merges: list[tuple[str, str]] = []
    for word in _WORDS:
        for end in range(2, len(word) + 1):
            if word[:end] not in tokens and len(tokens) < TOKENS:
                tokens.append(word[:end])
                merges.append((word[: end - 1], word[end - 1]))
    assert len(tokens) == TOKENS
    return tokens, merges


def tokenizer() -> Tokenizer:
    """The tiny tokenizer, as its tokenizer.json describes it."""
    tokens, merges = vocabulary_and_merges()
    vocabulary = {token: index for index, token in enumerate(tokens)}
    result = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    result.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    result.decoder = decoders.ByteLevel()
    result.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL_TOKENS])
    return result


# ---------------------------------------------------------------- GGUF file

_GGUF_LAYER_NAMES: Final = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_GGUF_NAMES: Final = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def write_gguf(
    path: Path,
    variant: Variant | str,
    *,
    storage: str = "Q8_0",
    seed: int = 0,
    edit: Callable[[gguf.GGUFWriter], None] | None = None,
) -> Path:
    """Writes a GGUF file whose matrices are stored as `storage` (a GGML type's name), vectors F32.

    Q6_K blocks hold 256 elements: that storage takes a variant from `wide`, and only the matrices
    whose rows it fits (the others are Q8_0). Its codes are random, since the gguf package has no
    Q6_K quantiser. `edit` may add metadata before the file is written.
    """
    v = VARIANTS[variant] if isinstance(variant, str) else variant
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(str(path), v.gguf_architecture)
    writer.add_block_count(v.layers)
    writer.add_context_length(v.context)
    writer.add_embedding_length(v.hidden)
    writer.add_feed_forward_length(v.intermediate)
    writer.add_head_count(v.heads)
    writer.add_head_count_kv(v.kv_heads)
    writer.add_key_length(v.head_dim)
    writer.add_value_length(v.head_dim)
    writer.add_rope_dimension_count(v.head_dim)
    writer.add_rope_freq_base(v.rope_theta)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(v.vocabulary)
    if v.sliding_window:
        writer.add_sliding_window(v.sliding_window)
    _add_tokenizer(writer, v)
    if edit is not None:
        edit(writer)
    random = np.random.default_rng(seed)
    for name, values in weights(v, seed).items():
        target = gguf_name(name)
        if values.ndim == 1:
            writer.add_tensor(target, _gguf_order(v, name, values))
            continue
        data, kind = _gguf_matrix(_gguf_order(v, name, values), storage, random)
        writer.add_tensor(target, data, raw_dtype=kind)
    if v.llama3_scaling:
        writer.add_tensor("rope_freqs.weight", llama3_divisors(v))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def wide(variant: str) -> Variant:
    """The variant with widths of 256, one layer: for storages with blocks of 256."""
    return replace(
        VARIANTS[variant], hidden=256, heads=8, kv_heads=2, head_dim=32, intermediate=256, layers=1
    )


def gguf_name(name: str) -> str:
    """GGUF's name of a tensor with Hugging Face name `name`."""
    if name in _GGUF_NAMES:
        return _GGUF_NAMES[name]
    layer, _, rest = name.removeprefix("model.layers.").partition(".")
    stem, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{_GGUF_LAYER_NAMES[stem]}.{kind}"


def llama3_divisors(variant: Variant) -> NDArray[np.float32]:
    """What llama.cpp's converter stores for the scaling of `configuration`: `f32 [D/2]`."""
    divisors = []
    for pair in range(variant.head_dim // 2):
        wavelength = 2 * np.pi * variant.rope_theta ** (2 * pair / variant.head_dim)
        if wavelength < 128 / 4:
            divisors.append(1.0)
        elif wavelength > 128 / 1:
            divisors.append(8.0)
        else:
            smooth = (128 / wavelength - 1) / (4 - 1)
            divisors.append(1 / ((1 - smooth) / 8 + smooth))
    return np.array(divisors, np.float32)


def _gguf_order(v: Variant, name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Query and key rows of llama files alternate between the two halves of a head."""
    if v.gguf_architecture != "llama" or not any(p in name for p in ("q_proj", "k_proj")):
        return values
    heads = values.shape[0] // v.head_dim
    halves = values.reshape(heads, 2, v.head_dim // 2, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))


def _gguf_matrix(
    values: NDArray[np.float32], storage: str, random: np.random.Generator
) -> tuple[NDArray[Any], gguf.GGMLQuantizationType]:
    kind = gguf.GGMLQuantizationType[storage]
    if kind is not gguf.GGMLQuantizationType.Q6_K:
        return gguf.quants.quantize(values, kind), kind
    if values.shape[1] % 256:
        kind = gguf.GGMLQuantizationType.Q8_0
        return gguf.quants.quantize(values, kind), kind
    blocks = random.integers(0, 256, (values.shape[0], values.shape[1] // 256, 210), np.uint8)
    # Scales of a few units and a d that gives the weights the size that `values` have.
    scales = random.integers(-8, 8, (*blocks.shape[:2], 16), np.int8)
    blocks[..., 192:208] = scales.view(np.uint8)
    d = np.float16(np.abs(values).mean() / 70)
    blocks[..., 208:210] = np.frombuffer(d.tobytes(), np.uint8)
    return blocks.reshape(values.shape[0], -1), kind


def _add_tokenizer(writer: gguf.GGUFWriter, v: Variant) -> None:
    tokens, merges = vocabulary_and_merges()
    kinds = [
        gguf.TokenType.CONTROL if token in SPECIAL_TOKENS else gguf.TokenType.NORMAL
        for token in tokens
    ]
    padding = v.vocabulary - len(tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*tokens, *(f"[PAD{index}]" for index in range(padding))])
    writer.add_token_types([*kinds, *[gguf.TokenType.UNUSED] * padding])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
