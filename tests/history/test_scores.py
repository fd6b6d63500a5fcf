"""SCORED_PREFILL: logprobs of given tokens, beside what PREFILL does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from helios.runtime.geometry import Operation
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rounds import SamplingParameters
from ignition.preparation.extents import SCORED_ROWS
from ignition.preparation.quantisation import WeightStorage
from tests.checkpoints import TOKENS
from tests.history.story import Teller, Told
from tests.model_parts import capture_tiny
from tests.replaying import log_softmax, prefill_logits, run_round, smallest

GREEDY = SamplingParameters(temperature=0.0)
DATA = Path(__file__).parent.parent / "data"
TEXT = np.random.default_rng(12).integers(3, TOKENS, 121).tolist()


@pytest.fixture(
    scope="module",
    params=[("llama", WeightStorage.BF16), ("qwen2", WeightStorage.INT8)],
    ids=lambda param: param[0],
)
def runtime(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ModelRuntime]:
    parts = capture_tiny(tmp_path_factory.mktemp("checkpoints"), *request.param)
    runtime = parts.load("cpu", threads=2, request_slots=8, cache_tokens=1024)
    yield runtime
    runtime.close()


def scored(runtime: ModelRuntime, text: list[int], chunk: int, likeliest: int = 0) -> Told:
    """Every token but the last with the one that follows as its target, in chunks."""
    teller, told = Teller(runtime), Told(1, tuple(range(8)), GREEDY)
    teller.begin(told)
    for start in range(0, len(text), chunk):
        tokens = text[start : start + chunk]
        targets = [*text[start + 1 : start + chunk + 1], -1][: len(tokens)]
        last = start + chunk >= len(text)
        teller.score(told, tokens, targets, sample=last, likeliest=likeliest)
    return told


def test_scores_are_the_log_softmax_of_the_raw_logits(runtime: ModelRuntime) -> None:
    vocabulary = runtime.geometry.vocabulary_tokens
    expected = log_softmax(prefill_logits(runtime, TEXT)[:, :vocabulary])
    told = scored(runtime, TEXT, len(TEXT))
    assert len(told.scores) == len(TEXT) > 3 * SCORED_ROWS
    wanted = expected[np.arange(len(TEXT) - 1), TEXT[1:]]
    np.testing.assert_allclose(told.scores[:-1], wanted, rtol=1e-6, atol=1e-6)
    assert math.isnan(told.scores[-1])


@pytest.mark.parametrize("wanted", [1, 20])
def test_ranks_and_likeliest_tokens_are_those_of_the_raw_logits(
    runtime: ModelRuntime, wanted: int
) -> None:
    vocabulary = runtime.geometry.vocabulary_tokens
    logits = prefill_logits(runtime, TEXT)[:, :vocabulary]
    expected = log_softmax(logits)
    order = np.argsort(-logits, axis=-1, kind="stable")
    told = scored(runtime, TEXT, len(TEXT), wanted)
    places = [order[row].tolist().index(token) + 1 for row, token in enumerate(TEXT[1:])]
    assert told.ranks == [*places, 0]
    assert [list(there.tokens) for there in told.likeliest[:-1]] == order[:-1, :wanted].tolist()
    assert told.likeliest[-1].tokens == ()
    for row, (there, rank) in enumerate(zip(told.likeliest[:-1], places, strict=True)):
        wide = expected[row, list(there.tokens)]
        np.testing.assert_allclose(there.logprobs, wide, rtol=1e-6, atol=1e-6)
        if rank <= wanted:  # the same bits, so that the greatest of a place can be told
            assert there.logprobs[rank - 1] == told.scores[row]
    assert scored(runtime, TEXT, len(TEXT)).scores[:-1] == told.scores[:-1]


@pytest.mark.parametrize("chunk", [1, 7, SCORED_ROWS, SCORED_ROWS + 1, 100])
def test_chunks_do_not_matter(runtime: ModelRuntime, chunk: int) -> None:
    whole, cut = scored(runtime, TEXT, len(TEXT), 5), scored(runtime, TEXT, chunk, 5)
    assert (cut.ranks, cut.likeliest) == (whole.ranks, whole.likeliest)
    assert cut.scores[:-1] == whole.scores[:-1]
    assert (cut.tokens, cut.logprobs) == (whole.tokens, whole.logprobs)


def test_other_lanes_do_not_matter(runtime: ModelRuntime) -> None:
    alone = scored(runtime, TEXT[:50], 50, 9)
    teller = Teller(runtime)
    told = [Told(slot, (4 * slot, 4 * slot + 1), GREEDY) for slot in range(3)]
    teller.begin(*told)
    texts = (TEXT[60:101], TEXT[:50], TEXT[:7])
    lanes = [
        one.lane(text, sample=True, targets=[*text[1:], -1], likeliest=wanted)
        for one, text, wanted in zip(told, texts, (0, 9, 20), strict=True)
    ]
    program = smallest(runtime.geometry, Operation.SCORED_PREFILL, 3, sum(map(len, texts)))
    done = run_round(runtime, program, lanes).lanes
    assert [len(lane.scores) for lane in done] == [41, 50, 7]
    assert list(done[1].scores[:-1]) == alone.scores[:-1]
    assert done[1].tokens == tuple(alone.tokens)
    assert done[1].ranking == (tuple(alone.ranks), tuple(alone.likeliest))
    assert done[0].ranking.alternatives == ()
    assert list(done[2].scores[:-1]) == alone.scores[:6]


def test_an_answer_s_scores_are_its_logprobs(runtime: ModelRuntime) -> None:
    """Bit for bit what PREFILL and DECODE said of the tokens when they sampled them."""
    teller, told = Teller(runtime), Told(0, tuple(range(8, 16)), GREEDY)
    teller.begin(told)
    teller.prefill(told, TEXT[:40])
    teller.decode(told, steps=20)
    again = scored(runtime, [*TEXT[:40], *told.tokens], 64)
    assert again.scores[39:-1] == told.logprobs


def test_tokens_without_a_target_have_no_score(runtime: ModelRuntime) -> None:
    teller, told, plain = Teller(runtime), Told(1, (0, 1)), Told(2, (2, 3))
    teller.begin(told, plain)
    targets = [-1] * 40
    targets[3], targets[39] = 5, 9
    teller.score(told, TEXT[:40], targets)
    teller.prefill(plain, TEXT[:40])
    assert [i for i, score in enumerate(told.scores) if not math.isnan(score)] == [3, 39]
    assert (told.tokens, told.logprobs) == (plain.tokens, plain.logprobs)
    assert plain.scores == []


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_scores_of_recorded_logits(tmp_path: Path, target: str) -> None:
    """Against what transformers computed in float32, stored beside the tests."""
    with np.load(DATA / "tiny_smollm.npz") as file:
        recorded = dict(file)
    runtime = capture_tiny(tmp_path, "smollm").load(target, request_slots=2, cache_tokens=512)
    teller, told = Teller(runtime), Told(1, (0, 1), GREEDY)
    tokens = recorded["tokens"].tolist()
    positions = recorded["positions"][:-1]
    teller.begin(told)
    teller.score(told, tokens, [*tokens[1:], -1])
    runtime.close()
    expected = log_softmax(recorded["logits"])[np.arange(len(positions)), [
        tokens[position + 1] for position in positions
    ]]  # fmt: skip
    got = np.array(told.scores)[positions]
    limit = {"cpu": 0.15, "reference": 1e-4}[target]
    np.testing.assert_allclose(got, expected, atol=limit)
