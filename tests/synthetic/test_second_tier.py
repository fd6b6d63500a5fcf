"""The second tier for every kind of history: what was evicted or served by an earlier engine is
brought back into other pages and rows, and the next tokens see all state that they should.

Any workload with engines that come and go over one folder, host memory too small for everything,
and caches in which requests crowd each other out; answers are those of the tokens alone.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.scheduler import Scheduler, SchedulerOptions
from helios.scheduler.cache.offload import TierOptions, open_second_tier
from tests.synthetic.driving import Serving, few_pages
from tests.synthetic.histories import HISTORIES, PAGE_TOKENS, History
from tests.synthetic.test_workloads import _prompts

ROOMY = 1 << 30
WAIT_MS = 60_000


class Engine(Serving):
    """A scheduler with a second tier over a real runtime."""

    def __init__(
        self,
        history: History,
        folder: Path | None,
        *,
        host_nbytes: int = 0,
        pages: int = 24,
        snapshots: int = 4,
    ) -> None:
        super().__init__(
            history, capacities=few_pages(history, pages, snapshots) if history.paged else None
        )
        geometry = self.runtime.geometry
        asked_for = TierOptions(host_nbytes, folder)
        self.tier = open_second_tier(self.runtime.cache_content, geometry, "00" * 32, asked_for)
        self.scheduler = Scheduler(geometry, SchedulerOptions(), tier=self.tier)

    def turn(self) -> None:
        """A turn, or waiting for what the tier brings."""
        while self.launch():
            pass
        if self.rounds_in_flight:
            self.complete()
        else:
            self.scheduler.wait_for_content(WAIT_MS)

    def close(self) -> None:
        """As an engine ends."""
        self.drain()
        if self.tier is not None:
            self.tier.close()
        self.runtime.close()

    def ask(self, prompt: tuple[int, ...], limit: int) -> int:
        """A request served alone and checked; the tokens reused."""
        number = self.submit(prompt, limit)
        self.drain()
        self.check(number)
        return self.scheduler.cache.counters.reused_tokens


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)
@pytest.mark.clause("CACHE-4")
def test_what_an_earlier_engine_served_is_reused(history: History, tmp_path: Path) -> None:
    """All of a prompt but its last token where the model can save that, else whole pages."""
    prompt = tuple(index * 7 % 23 for index in range(22))
    yesterday = Engine(history, tmp_path)
    assert yesterday.ask(prompt, 3) == 0
    yesterday.close()
    today = Engine(history, tmp_path)
    whole = len(prompt) // PAGE_TOKENS * PAGE_TOKENS
    reused = today.ask(prompt, 3)
    rules = today.runtime.geometry.history
    assert reused == (len(prompt) - 1 if rules.restores else whole)
    # Another prompt that begins the same.
    assert today.ask((*prompt[:9], 1, 2), 3) >= reused
    today.close()


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)
@pytest.mark.clause("CACHE-4")
def test_what_was_evicted_is_reused(history: History) -> None:
    """From host memory: the cache holds one prompt at a time, the tier all of them."""
    engine = Engine(history, None, host_nbytes=ROOMY, pages=10, snapshots=1)
    prompts = [tuple(index * step % 23 for index in range(22)) for step in (3, 5, 7)]
    for prompt in prompts:
        engine.ask(prompt, 3)
    engine.scheduler.cache.evict(100)
    for prompt in prompts:
        before = engine.scheduler.cache.counters.reused_tokens
        assert engine.ask(prompt, 3) - before >= 4 * PAGE_TOKENS
        engine.scheduler.cache.evict(100)
    engine.close()


@dataclass
class _Folder:
    """A folder for each example."""

    made: tempfile.TemporaryDirectory[str] = field(default_factory=tempfile.TemporaryDirectory)

    @property
    def path(self) -> Path:
        return Path(self.made.name)


_ACTS = st.one_of(
    st.tuples(st.just("submit"), _prompts(), st.integers(1, 10)),
    st.tuples(st.just("turn")),
    st.tuples(st.just("evict"), st.integers(1, 12)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("reset")),
    st.tuples(st.just("again"), _prompts(), st.integers(1, 10)),
)


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)
@settings(max_examples=15)
@given(
    acts=st.lists(_ACTS, max_size=30),
    pages=st.integers(10, 24),
    snapshots=st.integers(1, 4),
    host_nbytes=st.sampled_from([0, 4096, ROOMY]),
    with_files=st.booleans(),
)
@pytest.mark.clause("CACHE-4")
def test_engines_that_come_and_go(
    history: History,
    acts: list[tuple[object, ...]],
    pages: int,
    snapshots: int,
    host_nbytes: int,
    with_files: bool,
) -> None:
    folder = _Folder()
    with folder.made:

        def start() -> Engine:
            return Engine(
                history,
                folder.path if with_files else None,
                host_nbytes=host_nbytes,
                pages=pages,
                snapshots=snapshots,
            )

        engine = start()
        asked: list[tuple[tuple[int, ...], int]] = []
        for act in acts:
            match act:
                case ("submit", tuple() as prompt, int() as limit):
                    engine.submit(prompt, limit, seed=limit)
                    asked.append((prompt, limit))
                case ("again", _, _):
                    if asked:
                        engine.submit(*asked[len(acts) % len(asked)])
                case ("turn",):
                    if not engine.scheduler.idle or engine.rounds_in_flight:
                        engine.turn()
                case ("evict", int() as count):
                    if not engine.rounds_in_flight:
                        engine.scheduler.cache.evict(count)
                case ("reset",):
                    engine.scheduler.reset_cache()
                case ("restart",):
                    engine.drain()
                    for number in engine.requests:
                        engine.check(number)
                    engine.close()
                    engine = start()
        engine.drain()
        for number in engine.requests:
            engine.check(number)
        engine.close()
