"""OpenVINO GenAI's continuous batching, for benchmarks/versus.py: `openvino_genai_lanes.py FOLDER
THREADS`."""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai
from line_protocol import answer, silence

_VOCABULARY = 40_000


def main() -> None:
    """Loads the model, then answers."""
    answers = silence()
    folder, threads = sys.argv[1], int(sys.argv[2])
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 1
    scheduler.max_num_seqs = 32
    scheduler.max_num_batched_tokens = 2048
    scheduler.enable_prefix_caching = False
    pipeline = genai.ContinuousBatchingPipeline(
        folder, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads}
    )
    draw = random.Random(0)
    number = 0

    def begin(lanes: int, prompt_tokens: int, tokens: int) -> list[Any]:
        """Adds requests and computes all their prompts."""
        nonlocal number
        options = genai.GenerationConfig(
            max_new_tokens=tokens + 1, ignore_eos=True, do_sample=False
        )
        handles = []
        for _ in range(lanes):
            number += 1
            ids = [draw.randrange(100, _VOCABULARY) for _ in range(prompt_tokens)]
            prompt = openvino.Tensor(np.array([ids], np.int64))
            handles.append(pipeline.add_request(number, prompt, options))
        waiting = list(handles)
        while waiting:
            pipeline.step()
            waiting = [handle for handle in waiting if not handle.can_read()]
        return handles

    def finish(handles: list[Any]) -> None:
        while pipeline.has_non_finished_requests():
            pipeline.step()
        for handle in handles:
            handle.read_all()

    def prefill(tokens: int) -> dict[str, Any]:
        began = time.perf_counter()
        handles = begin(1, tokens, 1)
        took = time.perf_counter() - began
        finish(handles)
        return {"tokens_per_s": tokens / took}

    def decode(lanes: int, prompt_tokens: int, tokens: int) -> dict[str, Any]:
        handles = begin(lanes, prompt_tokens, tokens)
        began = time.perf_counter()
        finish(handles)
        return {"tokens_per_s": lanes * tokens / (time.perf_counter() - began)}

    answer({"prefill": prefill, "decode": decode}, answers)


if __name__ == "__main__":
    main()
