"""What the in-process engine keeps of prompts: in the cache, in host memory, in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helios.engine import Engine, Generation
from helios.errors import HeliosError
from helios.frontend.prepare import GenerationOptions
from helios.scheduler import SchedulerOptions

PROMPT = [(11 * k + 3) % 300 for k in range(100)]  # three pages and four tokens
OTHERS = [[(7 * k + i) % 300 for k in range(150)] for i in range(1, 4)]
GREEDY = GenerationOptions(max_tokens=8, temperature=0.0)

OpenEngine = Callable[..., Engine]


@pytest.fixture
def open_engine(tiny_core: Path) -> Iterator[OpenEngine]:
    engines: list[Engine] = []

    def opened(**options: Any) -> Engine:
        engines.append(Engine.open(tiny_core, accept="tests", threads=1, **options))
        return engines[-1]

    yield opened
    for engine in engines:
        engine.close()


def generate(engine: Engine, prompt: list[int] = PROMPT) -> Generation:
    (generation,) = engine.generate([prompt], GREEDY)
    return generation


def test_results_say_what_was_reused(open_engine: OpenEngine) -> None:
    engine = open_engine()
    first, again = generate(engine), generate(engine)
    assert first == again
    assert (first.reused_prompt_tokens, again.reused_prompt_tokens) == (0, 99)
    deltas = list(engine.stream(PROMPT, GREEDY))
    assert {delta.reused_prompt_tokens for delta in deltas} == {99}
    engine.reset_prefix_cache()
    assert generate(engine).reused_prompt_tokens == 0
    counters = engine.statistics().counters
    assert (counters["prefix_queries"], counters["prefix_hits"]) == (4, 2)
    assert counters["prefix_queried_tokens"] == 4 * 99
    assert counters["prefix_reused_tokens"] == 2 * 99
    assert counters["round_device_ns"] > 0
    assert counters["round_predicted_ns"] > 0
    assert engine.statistics().tiers == {}


def test_what_is_evicted_comes_back_from_host_memory(open_engine: OpenEngine) -> None:
    expected = generate(open_engine(scheduler=SchedulerOptions(prefix_reuse=False)))
    roomy = open_engine()
    page_nbytes = roomy.info.cache_nbytes // roomy.info.cache_pages
    small = {"cache_nbytes": 9 * page_nbytes, "snapshots": 0, "request_slots": 1}
    for offload_nbytes, reused in ((0, 0), (64 << 20, 96)):
        engine = open_engine(**small, offload_nbytes=offload_nbytes)
        assert generate(engine) == expected
        for prompt in OTHERS:
            generate(engine, prompt)
        again = generate(engine)
        assert again == expected
        assert again.reused_prompt_tokens == reused
    host = engine.statistics().tiers["host"]
    assert (host.stored > 3, host.restored) == (True, 3)
    assert host.restored_nbytes == 3 * host.stored_nbytes // host.stored
    assert host.limit_nbytes == engine.info.tiers_nbytes["host"] == 64 << 20


def test_files_outlive_an_engine(open_engine: OpenEngine, tmp_path: Path) -> None:
    yesterday = open_engine(prompt_cache=tmp_path / "new" / "folder")
    expected = generate(yesterday)
    yesterday.close()
    yesterday.close()
    today = open_engine(prompt_cache=tmp_path / "new" / "folder")
    again = generate(today)
    assert again == expected
    assert again.reused_prompt_tokens == 99
    assert today.statistics().tiers["files"].restored == 4
    today.reset_prefix_cache()
    assert generate(today).reused_prompt_tokens == 0
    assert today.info.startup_ms["second_tier"] > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prompt_cache_nbytes": 5}, r"prompt_cache_nbytes \(--prompt-cache-size\): is the size"),
        ({"offload_nbytes": -1}, r"offload_nbytes \(--offload-memory\): -1 is negative"),
        ({"offload_nbytes": 1000}, r"\(--offload-memory\): 1000 B hold not even one page"),
        (
            {"offload_nbytes": 1 << 20, "scheduler": SchedulerOptions(prefix_reuse=False)},
            r"\(--offload-memory\): keeps what prefix reuse is switched off for",
        ),
        ({"prompt_cache": "/dev/null/x"}, r"prompt_cache \(--prompt-cache\): .* can't be used"),
    ],
)
def test_what_cannot_be_kept_is_refused(
    open_engine: OpenEngine, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(HeliosError, match=said):
        open_engine(**options)


def test_a_folder_that_others_may_write_to_is_refused(
    open_engine: OpenEngine, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(HeliosError, match="can be written by other users"):
        open_engine(prompt_cache=tmp_path)
