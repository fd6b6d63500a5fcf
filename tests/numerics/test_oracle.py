"""The oracle on tiny models: what a replay says, and what its check refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from helios.errors import ExecutionError
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.oracle import ReplayedToken, check_oracle, greedy_replay
from helios.schema import core_pb2
from tests.model_parts import ModelParts, capture_tiny
from tests.replaying import log_softmax, prefill_logits

PROMPTS = ([5, 9, 40], list(range(10, 170)))  # the second takes two chunks of the prefill programs
COUNT = 12


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> ModelParts:
    return capture_tiny(tmp_path_factory.mktemp("checkpoints"), "smollm")


@pytest.fixture(scope="module")
def reference(parts: ModelParts) -> Iterator[ModelRuntime]:
    runtime = parts.load("reference", cache_tokens=512)
    yield runtime
    runtime.close()


@pytest.fixture(scope="module")
def cpu(parts: ModelParts) -> Iterator[ModelRuntime]:
    runtime = parts.load("cpu", cache_tokens=512)
    yield runtime
    runtime.close()


@pytest.fixture(scope="module")
def replays(reference: ModelRuntime) -> list[list[ReplayedToken]]:
    return [greedy_replay(reference, prompt, COUNT) for prompt in PROMPTS]


@pytest.fixture
def oracle(replays: list[list[ReplayedToken]]) -> core_pb2.Oracle:
    """Each replay up to its first token that doesn't lead clearly."""
    cases = []
    for prompt, replay in zip(PROMPTS, replays, strict=True):
        unclear = [place for place, token in enumerate(replay) if token.lead < 0.2]
        clear = replay[: unclear[0] if unclear else COUNT]
        cases.append(
            core_pb2.OracleCase(
                prompt_tokens=prompt,
                expected_tokens=[token.token for token in clear],
                expected_logprobs=[token.logprob for token in clear],
                smallest_lead=min(token.lead for token in clear),
            )
        )
    return core_pb2.Oracle(logprob_tolerance=0.1, cases=cases)


def test_replay_is_greedy_and_knows_its_lead(
    reference: ModelRuntime, replays: list[list[ReplayedToken]]
) -> None:
    for prompt, replay in zip(PROMPTS, replays, strict=True):
        text = prompt + [token.token for token in replay[:-1]]
        logits = prefill_logits(reference, text)[len(prompt) - 1 :]
        assert [token.token for token in replay] == logits.argmax(axis=1).tolist()
        best = np.sort(logits, axis=1)[:, -2:]
        np.testing.assert_allclose([t.lead for t in replay], best[:, 1] - best[:, 0], atol=1e-3)
        expected = log_softmax(logits).max(axis=1)
        np.testing.assert_allclose([t.logprob for t in replay], expected, atol=1e-3)


def test_oracle_holds_on_reference_and_cpu(
    reference: ModelRuntime, cpu: ModelRuntime, oracle: core_pb2.Oracle
) -> None:
    assert sum(len(case.expected_tokens) for case in oracle.cases) >= COUNT
    check_oracle(reference, oracle)
    check_oracle(cpu, oracle)
    check_oracle(cpu, oracle)  # leaves nothing behind that a second replay would meet


def test_check_names_the_first_wrong_token(cpu: ModelRuntime, oracle: core_pb2.Oracle) -> None:
    right = oracle.cases[1].expected_tokens[1]
    wrong = (right + 1) % 300
    oracle.cases[1].expected_tokens[1] = wrong
    complaint = rf"oracle case 1, token 1, on cpu/.*: expected token {wrong}, got {right}"
    with pytest.raises(ExecutionError, match=complaint):
        check_oracle(cpu, oracle)
    check_oracle(cpu, oracle, cases=1)


@pytest.mark.parametrize("error", [0.2, -0.2, float("nan")])
def test_check_holds_log_probabilities_to_the_tolerance(
    cpu: ModelRuntime, oracle: core_pb2.Oracle, error: float
) -> None:
    oracle.cases[0].expected_logprobs[0] += error
    with pytest.raises(ExecutionError, match=r"oracle case 0, token 0.*expected log-probability"):
        check_oracle(cpu, oracle)


def test_a_replay_that_does_not_fit_is_refused(cpu: ModelRuntime) -> None:
    with pytest.raises(ExecutionError, match="doesn't fit a context of 512"):
        greedy_replay(cpu, [5] * 505, COUNT)


@pytest.mark.parametrize(("prompt", "count"), [([], 3), ([4], 0)])
def test_a_replay_needs_a_prompt_and_a_count(
    cpu: ModelRuntime, prompt: list[int], count: int
) -> None:
    with pytest.raises(ExecutionError, match="needs a prompt and a count"):
        greedy_replay(cpu, prompt, count)


@pytest.mark.parametrize("field", ["expected_tokens", "expected_logprobs"])
def test_a_case_needs_a_log_probability_a_token(
    cpu: ModelRuntime, oracle: core_pb2.Oracle, field: str
) -> None:
    getattr(oracle.cases[1], field).pop()
    with pytest.raises(
        ExecutionError, match=r"oracle case 1: \d+ tokens are expected with \d+ log"
    ):
        check_oracle(cpu, oracle)


def test_a_model_whose_logits_are_not_finite_is_refused(parts: ModelParts) -> None:
    damaged = np.frombuffer(parts.weights, np.uint8).copy()
    norm = next(buffer for buffer in parts.manifest.buffers if buffer.name == "final_norm")
    damaged[norm.offset :][:4] = np.array([np.nan], np.float32).view(np.uint8)
    runtime = replace(parts, weights=memoryview(damaged)).load("reference")
    try:
        with pytest.raises(ExecutionError, match="logits that aren't finite"):
            greedy_replay(runtime, PROMPTS[0], 1)
    finally:
        runtime.close()
