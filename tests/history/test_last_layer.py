"""In the last layer of a prompt only rows that sample attend and go on: with the bits that they
have where all do, alone, in company, in chunks and decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from helios import _native
from helios.runtime.geometry import Operation
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rounds import LaneCompletion, SamplingParameters
from ignition.preparation.quantisation import WeightStorage
from tests.checkpoints import TOKENS
from tests.history.story import Teller, Told
from tests.model_parts import capture_tiny
from tests.replaying import read_logits, run_round, smallest

GREEDY = SamplingParameters(temperature=0.0)
PAGE = 32
# Planes of f16, with a window, and of bf16 in pairs.
MODELS = [
    ("qwen3", WeightStorage.BF16),
    ("mistral", WeightStorage.BF16),
    ("mistral", WeightStorage.INT8),
    ("smollm", WeightStorage.INT4),
]
TEXTS = [
    tuple(np.random.default_rng(length).integers(3, TOKENS, length).tolist())
    for length in (70, 5, 1, 33)
]


@pytest.fixture(
    scope="module",
    params=[(*model, isa) for model in MODELS for isa in _native.instruction_sets()],
    ids=lambda param: f"{param[0]}-{param[1].value}-{param[2]}",
)
def runtime(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ModelRuntime]:
    variant, storage, instruction_set = request.param
    parts = capture_tiny(tmp_path_factory.mktemp("checkpoints"), variant, storage)
    runtime = parts.load(
        "cpu", threads=2, instruction_set=instruction_set, request_slots=8, cache_tokens=32 * PAGE
    )
    yield runtime
    runtime.close()


def told(slot: int) -> Told:
    """A request with room for any of the texts and some more."""
    return Told(slot, tuple(range(4 * slot, 4 * slot + 4)), GREEDY)


def rows_of(
    runtime: ModelRuntime,
    operation: Operation,
    asked: Sequence[tuple[Told, Sequence[int], bool]],
) -> list[bytes]:
    """The logits of each lane that samples, from a round that consumes these tokens of each; the
    requests hear of it."""
    scored = operation is Operation.SCORED_PREFILL
    lanes = [
        one.lane(tokens, sample=sample, targets=tokens if scored else ())
        for one, tokens, sample in asked
    ]
    total = sum(max(1, len(tokens)) for _, tokens, _ in asked)
    program = smallest(runtime.geometry, operation, len(lanes), total)
    done: Sequence[LaneCompletion] = run_round(runtime, program, lanes).lanes
    for (one, _, _), lane in zip(asked, done, strict=True):
        one.heard(lane)
    logits = read_logits(runtime, sum(sample for _, _, sample in asked))
    return [row.tobytes() for row in logits]


def whole(runtime: ModelRuntime, text: Sequence[int]) -> bytes:
    """The logits after a text where all of its rows attend."""
    one = told(7)
    Teller(runtime).begin(one)
    return rows_of(runtime, Operation.SCORED_PREFILL, [(one, text, True)])[0]


def test_alone_and_in_company(runtime: ModelRuntime) -> None:
    expected = [whole(runtime, text) for text in TEXTS]
    assert len(set(expected)) == len(TEXTS)
    for text, row in zip(TEXTS, expected, strict=True):
        one = told(0)
        Teller(runtime).begin(one)
        assert rows_of(runtime, Operation.PREFILL, [(one, text, True)]) == [row]
    for samples in ((True,) * 4, (False, True, False, True), (True, False, True, False)):
        every = [told(slot) for slot in range(len(TEXTS))]
        Teller(runtime).begin(*every)
        asked = list(zip(every, TEXTS, samples, strict=True))
        got = rows_of(runtime, Operation.PREFILL, asked)
        assert got == [row for row, sample in zip(expected, samples, strict=True) if sample]


@pytest.mark.parametrize("chunk", [1, 31, 64])
def test_in_chunks_of_which_the_last_one_samples(runtime: ModelRuntime, chunk: int) -> None:
    text, one = TEXTS[0], told(1)
    Teller(runtime).begin(one)
    got: list[bytes] = []
    for start in range(0, len(text), chunk):
        last = start + chunk >= len(text)
        got += rows_of(runtime, Operation.PREFILL, [(one, text[start : start + chunk], last)])
    assert got == [whole(runtime, text)]
    assert len(one.tokens) == 1


def test_decoded_and_in_mixed_rounds(runtime: ModelRuntime) -> None:
    """A text's last token as a prompt's, as one that DECODE feeds, and as either in a MIXED
    round."""
    decoded, mixed, newcomer = told(0), told(1), told(2)
    teller = Teller(runtime)
    teller.begin(decoded, mixed, newcomer)
    for one in (decoded, mixed):
        teller.prefill(one, TEXTS[0])
    text = [*TEXTS[0], *decoded.tokens]
    expected = whole(runtime, text)
    assert rows_of(runtime, Operation.DECODE, [(decoded, (), True)]) == [expected]
    begun = [(mixed, (), True), (newcomer, TEXTS[0], False)]
    assert rows_of(runtime, Operation.MIXED, begun) == [expected]
    mixed_text = [*TEXTS[0], *mixed.tokens]
    ended = [(mixed, (), True), (newcomer, text[-1:], True)]
    assert rows_of(runtime, Operation.MIXED, ended) == [whole(runtime, mixed_text), expected]


def test_rows_that_nobody_samples_do_not_attend(tmp_path: Path) -> None:
    """The reference keeps every buffer, so what a program computed can be seen."""
    runtime = capture_tiny(tmp_path, "llama").load(
        "reference", request_slots=4, cache_tokens=16 * PAGE
    )
    every = [told(slot) for slot in range(len(TEXTS))]
    Teller(runtime).begin(*every)
    samples = (False, True, False, True)
    rows_of(runtime, Operation.PREFILL, list(zip(every, TEXTS, samples, strict=True)))
    assert runtime.read_buffer("prefill.p128/selected_rows").tolist() == [2]
    assert runtime.read_buffer("prefill.p128/selected_positions")[:2].tolist() == [4, 32]
    assert runtime.read_buffer("prefill.p128/selected_slot")[:2].tolist() == [1, 3]
    attended = np.abs(runtime.read_buffer("prefill.p128/last.attention_out")).max(axis=1)
    assert (attended[:2] > 0).all()
    assert not attended[2:].any()
    runtime.close()
