"""Makes Hugging Face folders of a GGUF file, in bf16 and float32: `make_checkpoint.py MODEL.gguf
FOLDER`, run by the environment of transformers. What the file quantised stays what it is: these
are its stored weights, spelt out."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    """Writes `bf16` and `f32` under the folder."""
    gguf, folder = Path(sys.argv[1]), Path(sys.argv[2])
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    # A model that was read from quantised blocks won't be written: one of its configuration will.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    plain = AutoModelForCausalLM.from_config(model.config, dtype=torch.float32)
    plain.load_state_dict(model.state_dict())
    for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        plain.to(dtype).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


if __name__ == "__main__":
    main()
