"""Canonical tensor names in the two file formats, the shapes that must be there, and the check.

Data and one check; both readers call it once, when a checkpoint is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ignition.preparation.checkpoints.checkpoint import ModelParameters
from ignition.preparation.errors import CheckpointError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class _Names:
    """A tensor's names: Hugging Face's, GGUF's. `{}` stands for the layer."""

    hugging_face: str
    gguf: str


_MODEL: Final = {
    "embedding": _Names("model.embed_tokens.weight", "token_embd.weight"),
    "head": _Names("lm_head.weight", "output.weight"),
    "final_norm": _Names("model.norm.weight", "output_norm.weight"),
}


def _layer(hugging_face: str, gguf: str) -> _Names:
    return _Names(f"model.layers.{{}}.{hugging_face}", f"blk.{{}}.{gguf}")


_LAYER: Final = {
    "attention_norm": _layer("input_layernorm.weight", "attn_norm.weight"),
    "query": _layer("self_attn.q_proj.weight", "attn_q.weight"),
    "key": _layer("self_attn.k_proj.weight", "attn_k.weight"),
    "value": _layer("self_attn.v_proj.weight", "attn_v.weight"),
    "output": _layer("self_attn.o_proj.weight", "attn_output.weight"),
    "query_bias": _layer("self_attn.q_proj.bias", "attn_q.bias"),
    "key_bias": _layer("self_attn.k_proj.bias", "attn_k.bias"),
    "value_bias": _layer("self_attn.v_proj.bias", "attn_v.bias"),
    "output_bias": _layer("self_attn.o_proj.bias", "attn_output.bias"),
    "query_norm": _layer("self_attn.q_norm.weight", "attn_q_norm.weight"),
    "key_norm": _layer("self_attn.k_norm.weight", "attn_k_norm.weight"),
    "feed_forward_norm": _layer("post_attention_layernorm.weight", "ffn_norm.weight"),
    "gate": _layer("mlp.gate_proj.weight", "ffn_gate.weight"),
    "up": _layer("mlp.up_proj.weight", "ffn_up.weight"),
    "down": _layer("mlp.down_proj.weight", "ffn_down.weight"),
}


def hugging_face_name(name: str) -> str:
    """The Hugging Face name of a canonical one."""
    return _names(name)[0].hugging_face.format(_names(name)[1])


def gguf_name(name: str) -> str:
    """The GGUF name of a canonical one."""
    return _names(name)[0].gguf.format(_names(name)[1])


def _names(name: str) -> tuple[_Names, str]:
    if name in _MODEL:
        return _MODEL[name], ""
    prefix, _, rest = name.partition(".")
    layer, _, part = rest.partition(".")
    assert prefix == "layers", f"no canonical tensor name: {name}"
    return _LAYER[part], layer


def tensor_shapes(parameters: ModelParameters) -> dict[str, Shape]:
    """The shape of every tensor of such a model, by canonical name."""
    p = parameters
    queries, keys = p.heads * p.head_dim, p.kv_heads * p.head_dim
    layer: dict[str, Shape] = {
        "attention_norm": (p.hidden,),
        "query": (queries, p.hidden),
        "key": (keys, p.hidden),
        "value": (keys, p.hidden),
        "output": (p.hidden, queries),
        "feed_forward_norm": (p.hidden,),
        "gate": (p.intermediate, p.hidden),
        "up": (p.intermediate, p.hidden),
        "down": (p.hidden, p.intermediate),
    }
    if p.attention_biases:
        layer |= {"query_bias": (queries,), "key_bias": (keys,), "value_bias": (keys,)}
    if p.output_bias:
        layer["output_bias"] = (p.hidden,)
    if p.query_key_norms:
        layer |= {"query_norm": (p.head_dim,), "key_norm": (p.head_dim,)}
    shapes: dict[str, Shape] = {"embedding": (p.vocabulary, p.hidden), "final_norm": (p.hidden,)}
    if not p.tied_embeddings:
        shapes["head"] = (p.vocabulary, p.hidden)
    for index in range(p.layers):
        shapes |= {f"layers.{index}.{part}": shape for part, shape in layer.items()}
    return shapes


def check_tensors(
    expected: Mapping[str, Shape], found: Mapping[str, Shape], ignored: Iterable[str], where: str
) -> None:
    """Checks a file's tensors (by the file's own names) against the parameters' shapes.

    Raises CheckpointError for a tensor that is missing, has another shape, or has no place in
    such a model: an unknown bias or adapter left out would change what the model says.
    """
    for name, shape in expected.items():
        if name not in found:
            raise CheckpointError(f"tensor `{name}` is missing", where=where)
        if found[name] != shape:
            raise CheckpointError(
                f"tensor `{name}` has shape {list(found[name])}, but the model's parameters ask "
                f"for {list(shape)}",
                where=where,
            )
    unknown = sorted(set(found) - set(expected) - set(ignored))
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise CheckpointError(
            f"tensor `{unknown[0]}`{more} has no place in this architecture",
            where=where,
            remedy="The checkpoint uses something that isn't supported",
        )
