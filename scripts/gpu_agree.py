"""Compares a cuda core's greedy answers with the numpy reference's; `scripts/gpu-check` runs it.

Tokens must be the same as long as the reference's choice leads clearly, log-probabilities close.
With `--programs-alone` every program runs once and nothing is compared: for compute-sanitizer.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from helios.core import OpenedCore, open_core
from helios.runtime.capacities import Capacities
from helios.runtime.every_program import run_every_program
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.oracle import ReplayedToken, greedy_steps

BUNDLE: Final = Path(__file__).resolve().parents[1]
TARGET: Final = "cuda:sm_90"
PROMPTS: Final = (3, 40, 200)
TOKENS: Final = 24
TOLERANCE_NATS: Final = 0.1
# A lead that log-probabilities within the tolerance don't turn.
CLEAR_NATS: Final = TOLERANCE_NATS


def opened(core: Path) -> OpenedCore:
    """The core, signed by the bundle's key."""
    pem = (BUNDLE / "publisher.key.pub").read_bytes()
    key = load_pem_public_key(pem).public_bytes_raw()  # type: ignore[union-attr]
    return open_core(core, accept="gpu-check", publisher_key=key)


def answers(core: OpenedCore, target: str) -> list[list[ReplayedToken]]:
    """Greedy answers to random prompts."""
    runtime = ModelRuntime.load(core, target=target, capacities=Capacities(request_slots=1))
    vocabulary = core.contract.model.vocabulary.sampled_tokens
    random = np.random.default_rng(0)
    with closing(runtime):
        began = time.monotonic()
        found = []
        for length in PROMPTS:
            prompt = random.integers(3, vocabulary, length).tolist()
            found.append(list(greedy_steps(runtime, prompt, TOKENS)))
        print(f"{target}: {time.monotonic() - began:.2f} s for {len(PROMPTS)} prompts")
    return found


def compare(core: OpenedCore) -> int:
    """Prints the largest distance; how many tokens are wrong."""
    wrong, worst, compared = 0, 0.0, 0
    for mine, theirs in zip(answers(core, TARGET), answers(core, "reference"), strict=True):
        for left, right in zip(mine, theirs, strict=True):
            compared += 1
            if left.token != right.token:
                if right.lead >= CLEAR_NATS:
                    wrong += 1
                    print(f"token {left.token} where {right.token} leads by {right.lead:.3f}")
                break
            worst = max(worst, abs(left.logprob - right.logprob))
    print(f"{compared} tokens compared, logprobs differ by {worst:.4f} at most")
    return wrong + (worst > TOLERANCE_NATS)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("core", type=Path)
    parser.add_argument("--programs-alone", action="store_true")
    arguments = parser.parse_args()
    core = opened(arguments.core)
    if arguments.programs_alone:
        with closing(ModelRuntime.load(core, target=TARGET)) as runtime:
            run_every_program(runtime)
        print("every program ran")
        return
    sys.exit(bool(compare(core)))


if __name__ == "__main__":
    main()
