"""transformers, eager, for benchmarks/versus.py: `transformers_lanes.py FOLDER THREADS [DTYPE]`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import torch
from line_protocol import answer, silence
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    """Loads the model, then answers."""
    answers = silence()
    folder, threads = sys.argv[1], int(sys.argv[2])
    dtype = getattr(torch, sys.argv[3] if len(sys.argv) > 3 else "bfloat16")
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    vocabulary = model.config.vocab_size

    def begin(lanes: int, tokens: int) -> Any:
        prompts = torch.randint(100, vocabulary, (lanes, tokens))
        return model(prompts, use_cache=True, logits_to_keep=1)

    def prefill(tokens: int) -> dict[str, Any]:
        began = time.perf_counter()
        begin(1, tokens).logits.argmax(-1).tolist()
        return {"tokens_per_s": tokens / (time.perf_counter() - began)}

    def decode(lanes: int, prompt_tokens: int, tokens: int) -> dict[str, Any]:
        state = begin(lanes, prompt_tokens)
        began = time.perf_counter()
        for _ in range(tokens):
            chosen = state.logits[:, -1:].argmax(-1)
            state = model(chosen, past_key_values=state.past_key_values, use_cache=True)
        state.logits.argmax(-1).tolist()
        return {"tokens_per_s": lanes * tokens / (time.perf_counter() - began)}

    def scores(windows: Sequence[Sequence[int]], first: int) -> dict[str, Any]:
        nats, count = 0.0, 0
        for window in windows:
            tokens = torch.tensor([window])
            logprobs = model(tokens).logits[0, first:-1].float().log_softmax(-1)
            nats -= float(logprobs.gather(1, tokens[0, first + 1 :, None]).double().sum())
            count += len(logprobs)
        return {"nats": nats, "tokens": count}

    def tokens(text: str) -> dict[str, Any]:
        return {"tokens": AutoTokenizer.from_pretrained(folder)(text)["input_ids"]}

    def text(tokens: Sequence[int]) -> dict[str, Any]:
        return {"text": AutoTokenizer.from_pretrained(folder).decode(list(tokens))}

    handlers = {"prefill": prefill, "decode": decode, "scores": scores}
    answer({**handlers, "tokens": tokens, "text": text}, answers)


if __name__ == "__main__":
    main()
