"""MIXED rounds: lanes that decode and a prompt's chunk in one, with the bits they have apart."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from helios.errors import ExecutionError
from helios.runtime.geometry import Operation
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rounds import LaneError, LaneWork, Round
from ignition.preparation.quantisation import WeightStorage
from tests.checkpoints import TOKENS
from tests.history.story import SEEDED, Teller, Told
from tests.model_parts import capture_tiny
from tests.replaying import smallest

PAGE = 32
LENGTHS = (37, 5, 64)
PROMPTS = [
    tuple(random.Random(seed).randrange(3, TOKENS) for _ in range(n))
    for seed, n in enumerate(LENGTHS)
]
NEWCOMER = tuple(random.Random(9).randrange(3, TOKENS) for _ in range(60))


@pytest.fixture(
    scope="module",
    params=[("llama", WeightStorage.BF16), ("qwen2", WeightStorage.INT8)],
    ids=lambda param: param[0],
)
def teller(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Teller]:
    parts = capture_tiny(tmp_path_factory.mktemp("checkpoints"), *request.param)
    runtime = parts.load("cpu", threads=2, request_slots=8, cache_tokens=48 * PAGE)
    yield Teller(runtime)
    runtime.close()


def residents(teller: Teller, first_page: int) -> list[Told]:
    """Three requests that have said their first token."""
    told = [
        Told(slot, tuple(range(first_page + 4 * slot, first_page + 4 * slot + 4)))
        for slot in range(len(PROMPTS))
    ]
    teller.begin(*told)
    for one, prompt in zip(told, PROMPTS, strict=True):
        teller.prefill(one, prompt)
    return told


def history(runtime: ModelRuntime, one: Told) -> NDArray[np.float32]:
    """Keys and values of every consumed token, `f32 [2 · layers · heads · width, tokens]`."""
    parts = []
    for layer in (0, 1):
        keys = runtime.read_buffer(f"cache.k.{layer}")[list(one.pages)]
        values = runtime.read_buffer(f"cache.v.{layer}")[list(one.pages)].swapaxes(2, 3)
        parts += [plane.transpose(1, 2, 0, 3).reshape(-1, 4 * PAGE) for plane in (keys, values)]
    return np.concatenate(parts)[:, : one.consumed]


def check(runtime: ModelRuntime, got: Sequence[Told], expected: Sequence[Told]) -> None:
    for one, other in zip(got, expected, strict=True):
        assert one.tokens == other.tokens
        assert one.logprobs == other.logprobs
        assert history(runtime, one).tobytes() == history(runtime, other).tobytes()


@pytest.mark.parametrize("chunk", [1, 29, 61])
def test_decoding_and_a_chunk_have_the_bits_that_they_have_apart(
    teller: Teller, chunk: int
) -> None:
    apart, newcomer = residents(teller, 0), Told(4, (12, 13, 14, 15))
    teller.begin(newcomer)
    teller.prefill(newcomer, NEWCOMER)
    steps = -(-len(NEWCOMER) // chunk)
    teller.decode(*apart, steps=steps)
    teller.decode(*apart, newcomer, steps=2)
    together, mixed = residents(teller, 20), Told(5, (36, 37, 38, 39))
    teller.begin(mixed)
    for start in range(0, len(NEWCOMER), chunk):
        tokens = NEWCOMER[start : start + chunk]
        teller.mix(together, mixed, tokens, sample=start + chunk >= len(NEWCOMER))
    teller.decode(mixed, *reversed(together), steps=2)
    check(teller.runtime, [*together, mixed], [*apart, newcomer])


def test_a_lane_that_has_finished_is_inert(teller: Teller) -> None:
    """It ended in the round before, which the host didn't know when it planned this one."""
    runtime, told = teller.runtime, residents(teller, 0)
    newcomer, expected = Told(4, (12, 13, 14, 15)), Told(5, (16, 17, 18, 19))
    teller.begin(newcomer, expected)
    teller.prefill(expected, NEWCOMER)
    generation = told[1].generation
    told[1].generation += 1_000_000  # of no request: as good as finished
    before = {name: runtime.read_buffer(name) for name in ("cache.k.0", "cache.v.1")}
    program = smallest(runtime.geometry, Operation.MIXED, 4, 3 + len(NEWCOMER))
    lanes = [*(one.lane(sample=True) for one in told), newcomer.lane(NEWCOMER, sample=True)]
    sequence = runtime.submit(Round(program.index, tuple(lanes)))
    assert runtime.wait(sequence, 60_000)
    done = runtime.read(sequence).lanes
    assert [lane.error for lane in done] == [
        LaneError.NONE, LaneError.STALE_GENERATION, LaneError.NONE, LaneError.NONE
    ]  # fmt: skip
    assert done[3].tokens == tuple(expected.tokens)
    assert done[3].logprobs == tuple(expected.logprobs)
    page = told[1].pages[told[1].consumed // PAGE]
    for name, content in before.items():
        assert np.array_equal(runtime.read_buffer(name)[page], content[page])
    told[1].generation = generation


@pytest.mark.parametrize("lanes", ["no prompt", "two prompts", "nobody decodes"])
def test_a_round_has_one_prompt_and_it_comes_last(teller: Teller, lanes: str) -> None:
    one, other = Told(0, (0,)), Told(1, (1,), SEEDED)
    teller.begin(one, other)
    chosen: dict[str, tuple[LaneWork, ...]] = {
        "no prompt": (one.lane(sample=True), other.lane(sample=True)),
        "two prompts": (one.lane((5,), sample=True), other.lane((5, 6), sample=True)),
        "nobody decodes": (one.lane((5, 6), sample=True),),
    }
    program = smallest(teller.runtime.geometry, Operation.MIXED, 2, 4)
    with pytest.raises(ExecutionError, match="last lane"):
        teller.runtime.submit(Round(program.index, chosen[lanes]))
