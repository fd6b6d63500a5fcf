"""Reads `config.json` of the supported Hugging Face architectures into `ModelParameters`.

Only the configuration; files and tensors are `huggingface`'s. What a configuration asks for and
we don't do is refused by the name of its field.
"""

from __future__ import annotations

from typing import Final

from ignition.preparation.checkpoints.checkpoint import (
    MAX_CONTEXT_TOKENS,
    MAX_FACTOR,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_VOCABULARY,
    MAX_WIDTH,
    LinearRopeScaling,
    Llama3RopeScaling,
    ModelParameters,
    RopeScaling,
)
from ignition.preparation.fields import Fields

ARCHITECTURES: Final = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
)


def read_family(config: Fields) -> str:
    """The one architecture that the configuration names, if it is supported."""
    named = config.values.get("architectures")
    if not isinstance(named, list) or len(named) != 1 or named[0] not in ARCHITECTURES:
        raise config.refusal(
            "architectures",
            f"is {named!r}",
            f"Supported is one of {', '.join(ARCHITECTURES)}",
        )
    return str(named[0])


def read_parameters(config: Fields, family: str) -> ModelParameters:
    """The parameters of a model of `family`."""
    _refuse_unsupported(config)
    hidden = config.integer("hidden_size", 1, MAX_WIDTH)
    heads = config.integer("num_attention_heads", 1, MAX_HEADS)
    kv_heads = config.integer_or_none("num_key_value_heads", 1, MAX_HEADS)
    if kv_heads is None:
        kv_heads = heads
    if heads % kv_heads:
        raise config.refusal("num_key_value_heads", f"is {kv_heads}, no divisor of {heads} heads")
    head_dim = config.integer_or_none("head_dim", 2, MAX_WIDTH)
    if head_dim is None:
        if hidden % heads:
            raise config.refusal("head_dim", f"is missing, and {heads} heads don't share {hidden}")
        head_dim = hidden // heads
    if head_dim % 2:
        raise config.refusal("head_dim", f"is {head_dim}; rope rotates pairs, so it must be even")
    layers = config.integer("num_hidden_layers", 1, MAX_LAYERS)
    # Qwen2 has biases on query, key and value whatever the configuration says; the others have
    # them on all four projections or none.
    biases = config.flag_or_none("attention_bias") or False
    rope_theta, rope_scaling = _read_rope(config)
    return ModelParameters(
        vocabulary=config.integer("vocab_size", 1, MAX_VOCABULARY),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=config.integer("intermediate_size", 1, MAX_WIDTH),
        rms_epsilon=config.number("rms_norm_eps", 1e-12, 1.0),
        rope_theta=rope_theta,
        rope_scaling=rope_scaling,
        context_tokens=config.integer("max_position_embeddings", 1, MAX_CONTEXT_TOKENS),
        sliding_window=_read_window(config, family, layers),
        attention_biases=biases or family == "Qwen2ForCausalLM",
        output_bias=biases and family in ("LlamaForCausalLM", "Qwen3ForCausalLM"),
        query_key_norms=family == "Qwen3ForCausalLM",
        tied_embeddings=config.flag_or_none("tie_word_embeddings") or False,
        activation="silu",
    )


def _refuse_unsupported(config: Fields) -> None:
    activation = config.text_or_none("hidden_act")
    if activation not in (None, "silu"):
        raise config.refusal("hidden_act", f"is {activation!r}", "Supported is silu")
    if config.flag_or_none("mlp_bias"):
        raise config.refusal("mlp_bias", "is true; feed-forward biases aren't supported")
    if config.values.get("quantization_config") is not None:
        raise config.refusal(
            "quantization_config",
            "asks for quantised weights",
            "Prepare from the unquantised checkpoint or from a GGUF file",
        )
    share = config.number_or_none("partial_rotary_factor", 0.0, MAX_FACTOR)
    if share not in (None, 1.0):
        raise config.refusal("partial_rotary_factor", f"is {share}; rope must turn whole heads")


def _read_rope(config: Fields) -> tuple[float, RopeScaling | None]:
    """Base and scaling, from `rope_parameters` (transformers 5) or the two older fields."""
    parameters = config.fields_or_none("rope_parameters")
    scaling = parameters or config.fields_or_none("rope_scaling")
    holder = config if parameters is None else parameters
    theta = holder.number_or_none("rope_theta", 1.0, MAX_FACTOR)
    if theta is None:
        theta = 10000.0
    if scaling is None:
        return theta, None
    if any(isinstance(value, dict) for value in scaling.values.values()):
        raise scaling.refusal("rope_parameters", "differ by layer type, which isn't supported")
    share = scaling.number_or_none("partial_rotary_factor", 0.0, MAX_FACTOR)
    if share not in (None, 1.0):
        raise scaling.refusal("partial_rotary_factor", f"is {share}; rope must turn whole heads")
    kind = scaling.text_or_none("rope_type") or scaling.text_or_none("type") or "default"
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, LinearRopeScaling(scaling.number("factor", 1.0, MAX_FACTOR))
    if kind != "llama3":
        raise scaling.refusal(
            "rope_type", f"is {kind!r}", "Supported are default, linear and llama3"
        )
    low = scaling.number("low_freq_factor", 1e-9, MAX_FACTOR)
    high = scaling.number("high_freq_factor", 1e-9, MAX_FACTOR)
    if high <= low:
        raise scaling.refusal("high_freq_factor", f"is {high}, not above low_freq_factor, {low}")
    original = scaling.integer("original_max_position_embeddings", 1, MAX_CONTEXT_TOKENS)
    factor = scaling.number("factor", 1.0, MAX_FACTOR)
    return theta, Llama3RopeScaling(factor, low, high, original)


def _read_window(config: Fields, family: str, layers: int) -> int | None:
    """The sliding window that every layer has, or None; layers that differ are refused."""
    window = config.integer_or_none("sliding_window", 1, MAX_CONTEXT_TOKENS)
    if family == "MistralForCausalLM" and "sliding_window" not in config.values:
        # The class's default is 4096, but every published configuration states it.
        raise config.refusal("sliding_window", "is missing", "Put null where there is none")
    if family == "LlamaForCausalLM":
        return None
    if family.startswith("Qwen") and not config.flag_or_none("use_sliding_window"):
        return None
    kinds = config.values.get("layer_types")
    if window is None:
        return None
    if kinds is None and family.startswith("Qwen"):
        first = config.integer("max_window_layers", 0, MAX_LAYERS)
        kinds = ["full_attention" if i < first else "sliding_attention" for i in range(layers)]
    if kinds is None or kinds == ["sliding_attention"] * layers:
        return window
    if kinds == ["full_attention"] * layers:
        return None
    raise config.refusal("layer_types", "mix full and sliding attention, which isn't supported")
