"""Helios in a process of its own, for benchmarks/versus.py: `helios_lanes.py CORE NAMESPACE
THREADS`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from line_protocol import answer, silence

from helios.core import open_core
from helios.engine import Engine, GenerationOptions
from helios.runtime.device import DeviceOptions
from helios.runtime.model_runtime import ModelRuntime
from throughput import Lanes


def main() -> None:
    """Loads the core, then answers."""
    answers = silence()
    core, namespace, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    runtime = ModelRuntime.load(
        open_core(core, accept=namespace, allow_unknown_publisher=True),
        options=DeviceOptions(threads=threads),
    )
    driver = Lanes(runtime)

    def prefill(tokens: int) -> dict[str, Any]:
        return {"tokens_per_s": driver.prefill(1, tokens)}

    def decode(lanes: int, prompt_tokens: int, tokens: int) -> dict[str, Any]:
        driver.prefill(lanes, prompt_tokens)
        return {"tokens_per_s": driver.decode(lanes, prompt_tokens, tokens)}

    def scores(windows: Sequence[Sequence[int]], first: int) -> dict[str, Any]:
        options = GenerationOptions(max_tokens=0, prompt_logprobs=0)
        with Engine.open(
            core, accept=namespace, threads=threads, allow_unknown_publisher=True
        ) as engine:
            every = engine.generate(list(windows), options)
        scored = [token.logprob for one in every for token in one.prompt_scores[first + 1 :]]
        return {"nats": -sum(scored), "tokens": len(scored)}

    answer({"prefill": prefill, "decode": decode, "scores": scores}, answers)
    runtime.close()


if __name__ == "__main__":
    main()
