"""What the second tier brings back is as good as computed: tokens and log-probabilities of real
programs are the same, bit for bit, after eviction to host memory and after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helios.runtime.rounds import SamplingParameters
from helios.scheduler import Finish, Request, Scheduler, SchedulerOptions, TokensEmitted
from helios.scheduler.cache.offload import TierOptions, open_second_tier
from ignition.preparation.quantisation import WeightStorage
from tests.checkpoints import TOKENS
from tests.model_parts import ModelParts, capture_tiny

ROOMY = 1 << 40
WAIT_MS = 60_000
Answer = list[tuple[int, float]]


def requests() -> list[Request]:
    """Prompts of all lengths over two stems, greedy and seeded."""
    found = []
    for number, length in enumerate((5, 31, 32, 33, 64, 65, 96, 97, 140, 200)):
        stem = 3 if number % 2 else 5
        prompt = tuple(3 + stem * index % (TOKENS - 3) for index in range(length))
        sampling = SamplingParameters(temperature=0.9 * (number % 3), seed=number)
        found.append(Request(number, prompt, 6 + number, sampling))
    return found


@pytest.fixture(
    scope="module", params=[("llama", WeightStorage.BF16), ("qwen3", WeightStorage.INT4)]
)
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelParts:
    variant, storage = request.param
    return capture_tiny(tmp_path_factory.mktemp("checkpoints"), variant, storage)


class Engine:
    """A loaded model with a scheduler, driven as the worker drives it."""

    def __init__(
        self,
        parts: ModelParts,
        *,
        host_nbytes: int = 0,
        folder: Path | None = None,
        reuse: bool = True,
        cache_tokens: int = 4096,
    ) -> None:
        self.runtime = parts.load(
            "cpu", threads=2, request_slots=8, cache_tokens=cache_tokens, snapshots=4
        )
        geometry = self.runtime.geometry
        asked_for = TierOptions(host_nbytes, folder)
        self.tier = open_second_tier(self.runtime.cache_content, geometry, "00" * 32, asked_for)
        options = SchedulerOptions(prefix_reuse=reuse)
        self.scheduler = Scheduler(geometry, options, tier=self.tier)

    def serve(self, wanted: list[Request]) -> list[Answer]:
        """All requests at once."""
        answers: dict[int, Answer] = {request.request_id: [] for request in wanted}
        for request in wanted:
            self.scheduler.submit(request)
        sequences: list[int] = []
        while not self.scheduler.idle or sequences:
            while self.scheduler.can_plan() and (planned := self.scheduler.plan()) is not None:
                sequences.append(self.runtime.submit(planned.round))
                self.scheduler.begin(planned, sequences[-1])
            if not sequences:
                self.scheduler.wait_for_content(WAIT_MS)
                continue
            sequence = sequences.pop(0)
            assert self.runtime.wait(sequence, WAIT_MS)
            for event in self.scheduler.complete(self.runtime.read(sequence)):
                assert isinstance(event, TokensEmitted)
                answers[event.request_id] += zip(event.tokens, event.logprobs, strict=True)
                assert event.finish in (None, Finish.LIMIT)
            self.scheduler.settle()
        self.scheduler.check_books()
        return [answers[request.request_id] for request in wanted]

    def close(self) -> None:
        if self.tier is not None:
            self.tier.close()
        self.runtime.close()


@pytest.fixture(scope="module")
def expected(parts: ModelParts) -> Iterator[list[Answer]]:
    engine = Engine(parts, reuse=False)
    yield [engine.serve([request])[0] for request in requests()]
    engine.close()


def test_after_a_restart(parts: ModelParts, expected: list[Answer], tmp_path: Path) -> None:
    wanted = requests()
    yesterday = Engine(parts, folder=tmp_path)
    assert yesterday.serve(wanted) == expected
    yesterday.close()
    today = Engine(parts, folder=tmp_path)
    assert [today.serve([request])[0] for request in wanted] == expected
    counters = today.scheduler.counters
    # What is left is tails: less than a page a prompt where its snapshot was kept or not.
    reused = today.scheduler.cache.counters.reused_tokens
    assert reused + counters.prefilled_tokens >= counters.prompt_tokens - len(wanted)
    page_tokens = today.runtime.geometry.page_tokens
    assert counters.prefilled_tokens <= page_tokens * len(wanted)
    assert reused >= sum(len(r.prompt) // page_tokens * page_tokens for r in wanted) - page_tokens
    today.close()


def test_after_eviction_in_a_crowd(parts: ModelParts, expected: list[Answer]) -> None:
    """A cache for one context at a time: requests push each other out, again and again."""
    wanted = requests()
    engine = Engine(parts, host_nbytes=ROOMY, cache_tokens=512)
    for _ in range(3):
        assert engine.serve(wanted) == expected
    assert engine.tier is not None
    assert engine.tier.host is not None
    assert engine.tier.host.counters.found > 0
    assert engine.scheduler.cache.counters.evicted_pages > 0
    engine.close()
