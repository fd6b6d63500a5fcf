"""A transformers model that holds exactly the weights that a prepared model stores.

The state dict is read back from the packed buffers by the reference's unpacker, so what is
compared is arithmetic, not quantisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from helios.kernels.catalogue import ROW_GROUP, TILE_OUTPUTS
from helios.runtime.manifest import DType
from helios.runtime.reference.unpack import unpack
from helios.schema import execution_pb2
from tests.model_parts import ModelParts

_LAYER_NAMES = {
    "attention_norm": "input_layernorm.weight",
    "feed_forward_norm": "post_attention_layernorm.weight",
    "query_norm": "self_attn.q_norm.weight",
    "key_norm": "self_attn.k_norm.weight",
    "output": "self_attn.o_proj.weight",
    "output_bias": "self_attn.o_proj.bias",
    "down": "mlp.down_proj.weight",
}
_MODEL_NAMES = {
    "embedding": "model.embed_tokens.weight",
    "head": "lm_head.weight",
    "final_norm": "model.norm.weight",
}


def stored_buffers(parts: ModelParts) -> dict[str, NDArray[np.float32]]:
    """Every weight buffer in float32, by name, in its logical shape."""
    raw = np.frombuffer(parts.weights, np.uint8)
    found = {}
    for buffer in parts.manifest.buffers:
        if buffer.resource:
            outputs, width = (1, *buffer.shape) if len(buffer.shape) == 1 else buffer.shape
            content = raw[buffer.offset : buffer.offset + buffer.nbytes]
            matrix = unpack(content, buffer.packing, outputs, width, DType(buffer.dtype))
            found[buffer.name] = matrix.reshape(tuple(buffer.shape))
    return found


def state_dict(parts: ModelParts, config: Any) -> dict[str, torch.Tensor]:
    """The stored weights under transformers' names."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kv_rows = config.num_key_value_heads * head_dim
    splits = [-2 * kv_rows, -kv_rows]
    found: dict[str, NDArray[np.float32]] = {}
    by_rows = any(b.packing == execution_pb2.PACKING_ROWS_BF16 for b in parts.manifest.buffers)
    together = ROW_GROUP if by_rows else TILE_OUTPUTS
    for name, values in stored_buffers(parts).items():
        _, layer, kind = name.split(".") if name.startswith("layers.") else ("", "", name)
        prefix = f"model.layers.{layer}."
        if kind == "inverse_frequency":
            continue
        if kind in ("qkv", "qkv_bias"):
            suffix = "weight" if kind == "qkv" else "bias"
            rows = len(values)
            edges = [0, rows + splits[0], rows + splits[1], rows]
            for part, start, end in zip("qkv", edges, edges[1:], strict=False):
                found[f"{prefix}self_attn.{part}_proj.{suffix}"] = values[start:end]
        elif kind == "gate_up":
            tiles = values.reshape(-1, 2, together, values.shape[1])
            found[f"{prefix}mlp.gate_proj.weight"] = tiles[:, 0].reshape(-1, values.shape[1])
            found[f"{prefix}mlp.up_proj.weight"] = tiles[:, 1].reshape(-1, values.shape[1])
        elif layer:
            found[prefix + _LAYER_NAMES[kind]] = values
        else:
            found[_MODEL_NAMES[kind]] = values
    if config.tie_word_embeddings:
        found["lm_head.weight"] = found["model.embed_tokens.weight"]
    return {name: torch.from_numpy(np.array(values)) for name, values in found.items()}


def load(folder: Path, parts: ModelParts, **options: Any) -> Any:
    """The checkpoint's model in float32 with `parts`' weights in place of its own."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", **options
    ).eval()
    model.load_state_dict(state_dict(parts, model.config), strict=True)
    return model


def logits(model: Any, tokens: Sequence[int]) -> NDArray[np.float32]:
    """`f32 [tokens, vocabulary]` in one forward pass."""
    with torch.no_grad():
        result = model(torch.tensor([list(tokens)]), use_cache=False).logits[0]
    array: NDArray[np.float32] = result.numpy()
    return array
