"""The engine on a core with two ranks: requests get what one rank gives them, bit for bit, whatever
is cancelled, preempted, evicted or brought back; and it ends where the ranks disagree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.core import open_core
from helios.engine import Engine, Generation
from helios.errors import ExecutionError
from helios.frontend.prepare import GenerationOptions
from helios.scheduler import SchedulerOptions
from tests.ranked_cores import write_ranked_core

# Lengths on both sides of a page (32 tokens) and of the largest prefill program (32).
PROMPTS = [[(11 * i + 5 * k) % 300 for k in range(n)] for i, n in enumerate([1, 7, 31, 32, 33, 90])]
GREEDY = GenerationOptions(max_tokens=40, temperature=0.0)
SEEDED = GenerationOptions(
    max_tokens=40, temperature=1.0, top_k=50, top_p=0.9, seed=77, repetition_penalty=1.1
)
# Longer than the least cache holds of more than one.
LONG = replace(SEEDED, max_tokens=120)
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OpenEngine = Callable[..., Engine]


@pytest.fixture(scope="module")
def two_ranks(tiny_core: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    core = open_core(tiny_core, accept="tests", publisher_key=KEY.public_key().public_bytes_raw())
    return write_ranked_core(core, tmp_path_factory.mktemp("ranks") / "core", KEY)


@pytest.fixture
def open_engine(two_ranks: Path) -> Iterator[OpenEngine]:
    engines: list[Engine] = []

    def opened(core: Path = two_ranks, **options: Any) -> Engine:
        engines.append(Engine.open(core, accept="tests", threads=2, **options))
        return engines[-1]

    yield opened
    for engine in engines:
        engine.close()


@pytest.fixture(scope="module")
def alone(tiny_core: Path) -> dict[str, list[Generation]]:
    """What one rank gives every prompt by itself."""
    with Engine.open(tiny_core, accept="tests", threads=1) as engine:
        return {
            name: [engine.generate([prompt], options)[0] for prompt in PROMPTS]
            for name, options in (("greedy", GREEDY), ("seeded", SEEDED), ("long", LONG))
        }


def page_nbytes(engine: Engine) -> int:
    """Of one rank."""
    return engine._model.native.ranks[0].cache_content.page_nbytes


def test_two_ranks_change_no_bit(
    open_engine: OpenEngine, alone: dict[str, list[Generation]]
) -> None:
    engine = open_engine()
    assert engine.info.ranks == 2
    assert engine.generate(PROMPTS, SEEDED) == alone["seeded"]
    assert engine.generate(PROMPTS, GREEDY) == alone["greedy"]
    assert engine.generate(PROMPTS[::-1], GREEDY)[::-1] == alone["greedy"]
    assert engine.statistics().counters["prefix_hits"] > 0


def test_preemption_changes_no_bit(
    open_engine: OpenEngine, alone: dict[str, list[Generation]]
) -> None:
    roomy = open_engine()
    engine = open_engine(cache_nbytes=9 * page_nbytes(roomy), snapshots=0)
    assert engine.info.cache_pages == 9
    assert engine.info.cache_nbytes == 2 * 9 * page_nbytes(roomy)
    assert engine.generate(PROMPTS[::-1], LONG)[::-1] == alone["long"]
    assert engine.statistics().counters["preemptions"] > 0
    snapshots = open_engine(cache_nbytes=12 * page_nbytes(roomy), snapshots=2)
    assert snapshots.generate(PROMPTS[::-1], LONG)[::-1] == alone["long"]
    assert snapshots.statistics().counters["preemptions"] > 0


def test_who_leaves_takes_nothing_from_the_others(
    open_engine: OpenEngine, alone: dict[str, list[Generation]]
) -> None:
    engine = open_engine()
    for _ in range(3):
        stream = engine.stream(PROMPTS[1], replace(GREEDY, max_tokens=100))
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        assert engine.generate(PROMPTS, GREEDY) == alone["greedy"]
    finished = engine.statistics().finished
    assert finished["cancelled"] + finished["limit"] + finished["eos"] == 3 + 3 * len(PROMPTS)


def test_what_was_evicted_comes_back_on_both(open_engine: OpenEngine, tmp_path: Path) -> None:
    prompt = [(11 * k + 3) % 300 for k in range(100)]
    others = [[(7 * k + i) % 300 for k in range(150)] for i in range(1, 4)]
    (expected,) = open_engine(scheduler=SchedulerOptions(prefix_reuse=False)).generate(
        [prompt], GREEDY
    )
    small = {
        "cache_nbytes": 9 * page_nbytes(open_engine()),
        "snapshots": 0,
        "request_slots": 1,
    }
    for kept in ({"offload_nbytes": 64 << 20}, {"prompt_cache": tmp_path / "kept"}):
        engine = open_engine(**small, **kept)
        assert engine.generate([prompt], GREEDY) == [expected]
        for other in others:
            engine.generate([other], GREEDY)
        (again,) = engine.generate([prompt], GREEDY)
        assert again == expected
        assert again.reused_prompt_tokens == 96
    engine.close()
    (tomorrow,) = open_engine(prompt_cache=tmp_path / "kept").generate([prompt], GREEDY)
    assert tomorrow == expected
    assert tomorrow.reused_prompt_tokens >= 96


def test_one_rank_makes_nothing_of_what_two_have_kept(
    open_engine: OpenEngine, tiny_core: Path, tmp_path: Path
) -> None:
    """A core's digest tells them apart already; so does the layout of what is kept."""
    ranked = open_engine(prompt_cache=tmp_path / "kept")
    ranked.generate([PROMPTS[5]], GREEDY)
    ranked.close()
    (alone,) = open_engine(tiny_core, prompt_cache=tmp_path / "kept").generate([PROMPTS[5]], GREEDY)
    assert alone.reused_prompt_tokens == 0


def half(content: bytes) -> bytes:
    """The first half of the weights, and zeros."""
    return content[: len(content) // 2].ljust(len(content), b"\0")


@pytest.fixture
def torn(tiny_core: Path, tmp_path: Path) -> Path:
    """A core whose ranks compute different things."""
    core = open_core(tiny_core, accept="tests", publisher_key=KEY.public_key().public_bytes_raw())
    return write_ranked_core(core, tmp_path / "torn", KEY, weights={1: half})


def test_ranks_that_disagree_end_the_engine(open_engine: OpenEngine, torn: Path) -> None:
    engine = open_engine(torn, oracle=False)
    disagree = r"rank 1, round \d+: commits something else than rank 0: tokens of lane \d"
    with pytest.raises(ExecutionError, match=disagree):
        engine.generate(PROMPTS, replace(SEEDED, max_tokens=160))
    with pytest.raises(ExecutionError, match=disagree):
        engine.generate(PROMPTS, GREEDY)
