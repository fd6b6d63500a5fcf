"""Drives a ModelRuntime with hand-made rounds, to read the logits of every position of a text.

For tests that compare numbers; the scheduler isn't involved. Rounds run one after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from helios.runtime.geometry import Geometry, Operation, ProgramInfo
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rounds import (
    Completion,
    LaneAdmission,
    LaneError,
    LaneWork,
    Round,
    SamplingParameters,
)
from tests.checkpoints import VARIANTS

GREEDY = LaneAdmission(
    sampling=SamplingParameters(temperature=0.0), output_limit=2**31 - 1, emitted=0, eos_ids=()
)
# A generation for every request of a test process: a slot's page list starts anew with each.
GENERATIONS = itertools.count(1)
# Largest relative error of a tiny variant's logits with bf16 weights. Activations are rounded to
# bf16 before every product: eight bits, about 1e-3 a product. The variant with most layers lets
# that grow further than the others do (rounding alone, simulated in numpy, gives 1.2e-2).
BF16_LIMITS = dict.fromkeys(VARIANTS, 1e-2) | {"smollm": 1.5e-2}
# Operations whose rounds pack the tokens of several lanes.
PACKED = (Operation.PREFILL, Operation.SCORED_PREFILL, Operation.MIXED)
_TIMEOUT_MS = 120_000


def smallest(
    geometry: Geometry, operation: Operation, lanes: int = 1, tokens: int = 1
) -> ProgramInfo:
    """The smallest program of an operation that takes so many lanes and packed tokens."""
    for program in geometry.of(operation):
        roomy = operation not in PACKED or program.packed_token_capacity >= tokens
        if program.batch_capacity >= lanes and roomy:
            return program
    raise AssertionError(f"no {operation.name} program takes {lanes} lanes and {tokens} tokens")


def run_round(
    runtime: ModelRuntime,
    program: ProgramInfo,
    lanes: Sequence[LaneWork],
    top_logprobs: Sequence[int] = (),
) -> Completion:
    """Submits a round, waits for it, and asserts that no lane was refused."""
    sequence = runtime.submit(Round(program.index, tuple(lanes), tuple(top_logprobs)))
    assert runtime.wait(sequence, _TIMEOUT_MS), f"{program.name} timed out"
    completion = runtime.read(sequence)
    assert all(lane.error is LaneError.NONE for lane in completion.lanes), completion
    return completion


def read_logits(runtime: ModelRuntime, rows: int) -> NDArray[np.float32]:
    """The first rows of the last round's logits, `f32 [rows, vocabulary]`."""
    logits: NDArray[np.float32] = runtime.read_buffer("logits")
    return logits[:rows].copy()


def prefill_logits(
    runtime: ModelRuntime, tokens: Sequence[int], lanes: int = 1
) -> NDArray[np.float32]:
    """Logits after every token of a text, `f32 [tokens, vocabulary]`, from PREFILL rounds.

    A round gives one row of logits a lane. With one lane the text goes through in chunks of one
    token. With more, `lanes` slots share the text's pages and each feeds one of the next tokens:
    within a round keys are stored before anything attends, so the round is a chunk of the text.
    """
    geometry = runtime.geometry
    pages = tuple(range(-(-len(tokens) // geometry.page_tokens)))
    assert len(pages) <= geometry.cache_pages
    rows = []
    for start in range(0, len(tokens), lanes):
        chunk = tokens[start : start + lanes]
        if lanes > 1 or start == 0:
            generation = next(GENERATIONS)
            admit = smallest(geometry, Operation.INITIALIZE, len(chunk))
            run_round(runtime, admit, [
                LaneWork(slot, generation, start + slot, (), False, (), GREEDY)
                for slot in range(len(chunk))
            ])  # fmt: skip
        run_round(runtime, smallest(geometry, Operation.PREFILL, len(chunk), len(chunk)), [
            LaneWork(slot, generation, start + slot, (token,), True, pages)
            for slot, token in enumerate(chunk)
        ])  # fmt: skip
        rows.append(read_logits(runtime, len(chunk)))
    return np.concatenate(rows)


def decode_logits(
    runtime: ModelRuntime, prompt: Sequence[int], count: int
) -> tuple[list[int], NDArray[np.float32]]:
    """A prompt in one chunk and `count` greedy DECODE steps: the output tokens (`count + 1`) and
    the logits that chose them, `f32 [count + 1, vocabulary]`."""
    geometry = runtime.geometry
    pages = tuple(range(-(-(len(prompt) + count) // geometry.page_tokens)))
    generation = next(GENERATIONS)
    admit = smallest(geometry, Operation.INITIALIZE)
    run_round(runtime, admit, [LaneWork(0, generation, 0, (), False, (), GREEDY)])
    prefill = smallest(geometry, Operation.PREFILL, tokens=len(prompt))
    last = run_round(runtime, prefill, [LaneWork(0, generation, 0, tuple(prompt), True, pages)])
    tokens, rows = [last.lanes[0].tokens[0]], [read_logits(runtime, 1)]
    for step in range(count):
        work = LaneWork(0, generation, len(prompt) + step, (), True, pages)
        last = run_round(runtime, smallest(geometry, Operation.DECODE), [work])
        tokens.append(last.lanes[0].tokens[0])
        rows.append(read_logits(runtime, 1))
    return tokens, np.concatenate(rows)


def relative_error(got: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """Norm of the difference over the norm of what is expected, over the whole array."""
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Log-probabilities over the last axis, in float64."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return result


def mean_divergence(got: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """Mean over rows of KL(expected ‖ got) of the next-token distributions, in nats."""
    total = 0.0
    for start in range(0, len(got), 64):  # bounds the float64 temporaries at large vocabularies
        p = log_softmax(expected[start : start + 64])
        q = log_softmax(got[start : start + 64])
        total += float((np.exp(p) * (p - q)).sum())
    return total / len(got)
