"""onnxruntime-genai, for benchmarks/versus.py: `onnxruntime_genai_lanes.py FOLDER`.

The number of threads is in the model's own `genai_config.json`, where versus.py puts it."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import onnxruntime_genai as og
from line_protocol import answer, silence

_VOCABULARY = 40_000


def main() -> None:
    """Loads the model, then answers."""
    answers = silence()
    model = og.Model(sys.argv[1])
    random = np.random.default_rng(0)

    def begin(lanes: int, prompt_tokens: int, tokens: int) -> Any:
        length = prompt_tokens + tokens + 1
        parameters = og.GeneratorParams(model)
        parameters.set_search_options(
            batch_size=lanes, max_length=length, min_length=length, do_sample=False
        )
        generator = og.Generator(model, parameters)
        prompts = random.integers(100, _VOCABULARY, (lanes, prompt_tokens), dtype=np.int32)
        generator.append_tokens(prompts)
        generator.generate_next_token()
        return generator

    def prefill(tokens: int) -> dict[str, Any]:
        began = time.perf_counter()
        begin(1, tokens, 1)
        return {"tokens_per_s": tokens / (time.perf_counter() - began)}

    def decode(lanes: int, prompt_tokens: int, tokens: int) -> dict[str, Any]:
        generator = begin(lanes, prompt_tokens, tokens)
        began = time.perf_counter()
        for _ in range(tokens):
            generator.generate_next_token()
        return {"tokens_per_s": lanes * tokens / (time.perf_counter() - began)}

    answer({"prefill": prefill, "decode": decode}, answers)


if __name__ == "__main__":
    main()
