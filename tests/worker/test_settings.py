"""Settings of a worker: what is said explicitly, what the core says, what is left."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from helios.contract import decode
from helios.errors import ContractError
from helios.runtime import RankPeers
from helios.scheduler.cache.offload import TierOptions
from helios.scheduler.options import DEFAULT_QUEUE_CAPACITY, SchedulerOptions
from helios.worker.options import WorkerOptions
from helios.worker.second_tier import open_tier, tier_options
from helios.worker.startup import asked_capacities, load_model, resolved_scheduler
from tests.contract.sample import sample_contract
from tests.engine.conftest import PREPARATION, tiny_core
from tests.scheduler.fake_geometry import geometry

__all__ = ["tiny_core"]


@pytest.mark.clause("BOOT-9")
@pytest.mark.parametrize(
    ("explicit", "recommended", "limit"),
    [
        (None, None, DEFAULT_QUEUE_CAPACITY),
        (None, 8, 8),
        (None, 4000, 4000),
        (3, 8, 3),
        (500, 8, 500),
        (3, None, 3),
    ],
)
def test_the_queue_is_what_was_said_else_the_cores(
    explicit: int | None, recommended: int | None, limit: int
) -> None:
    defaults = replace(decode(sample_contract()).defaults, queue_capacity=recommended)
    asked = SchedulerOptions(queue_capacity=explicit, frames_in_flight=1)
    resolved = resolved_scheduler(asked, defaults)
    assert (resolved.queue_limit, resolved.frames_in_flight) == (limit, 1)


def test_options_survive_the_way_to_the_worker() -> None:
    options = WorkerOptions(
        core="core",
        accept="tests",
        cache_share=0.25,
        speculative_width=4,
        history_drafting=True,
        prompt_cache="prompts",
        prompt_cache_nbytes=7 << 30,
        offload_nbytes=5 << 20,
        peers=RankPeers.PROCESSES,
        scheduler=SchedulerOptions(
            queue_capacity=7, max_step_ms=12.5, prefill_share=0.25, frames_in_flight=1
        ),
    )
    wire = msgspec.json.encode(options)
    assert msgspec.json.decode(wire, type=WorkerOptions) == options
    asked = asked_capacities(options)
    assert (asked.cache_share, asked.speculative_width, asked.history_drafting) == (0.25, 4, True)
    assert tier_options(options) == TierOptions(5 << 20, Path("prompts"), 7 << 30)


def test_a_prompt_cache_without_a_size_has_the_default_one() -> None:
    options = WorkerOptions(core="core", accept="tests", prompt_cache="prompts")
    assert tier_options(options) == TierOptions(folder=Path("prompts"))
    assert options.asks_for_second_tier
    assert not WorkerOptions(core="core", accept="tests").asks_for_second_tier


def test_a_core_that_can_reuse_nothing_has_no_second_tier() -> None:
    options = WorkerOptions(core="core", accept="tests", offload_nbytes=1 << 20)
    runtime: Any = SimpleNamespace(geometry=geometry())
    with pytest.raises(ContractError, match=r"\(--offload-memory\): no request of this core"):
        open_tier(options, "00" * 32, runtime)


def test_the_second_tier_ends_before_the_device(
    tiny_core: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = WorkerOptions(
        core=str(tiny_core), accept="tests", threads=1, prompt_cache=str(tmp_path),
        allow_unknown_publisher=True, oracle=False,
    )  # fmt: skip
    before = set(threading.enumerate())
    model = load_model(options)
    assert model.tier is not None
    ended: list[str] = []
    for name, part in (("tier", model.tier), ("device", model.native)):
        close = type(part).close

        def noted(self: Any, name: str = name, close: Any = close) -> None:
            ended.append(name)
            close(self)

        monkeypatch.setattr(type(part), "close", noted)
    model.close()
    assert ended == ["tier", "device"]
    names = {thread.name for thread in set(threading.enumerate()) - before}
    assert not names & {"helios-cache-writer", "helios-cache-reader"}


@pytest.mark.clause("BOOT-7", "BOOT-9")
def test_a_loaded_model_tells_its_resulting_capacities(tiny_core: Path) -> None:
    options = WorkerOptions(
        core=str(tiny_core), accept="tests", threads=1, request_slots=2, cache_share=0.01,
        allow_unknown_publisher=True, oracle=False,
    )  # fmt: skip
    model = load_model(options)
    try:
        ready = model.ready_message()
        memory = model.runtime.memory
        (geometry,) = model.native.manifests
    finally:
        model.close()
    assert ready.prefix_reuse
    assert ready.tiers_nbytes == {}
    assert ready.request_slots == 2 < PREPARATION.max_active
    assert ready.queue_capacity == model.core.contract.defaults.queue_capacity
    # The cache's buffers hold the live state rows of both slots too.
    assert ready.cache_nbytes == memory["cache"] - 2 * geometry.snapshot_nbytes
    assert ready.snapshots == geometry.snapshot_rows == 4
    assert ready.cache_pages != model.core.contract.cache_pages
    assert (ready.speculative_width, ready.max_context_tokens) == (0, 256)


@pytest.mark.clause("BOOT-8")
def test_history_drafting_fails_start_up_without_speculation(tiny_core: Path) -> None:
    options = WorkerOptions(
        core=str(tiny_core), accept="tests", threads=1, history_drafting=True,
        allow_unknown_publisher=True,
    )  # fmt: skip
    with pytest.raises(ContractError, match="history drafting: needs learned speculation"):
        load_model(options)


def test_contradicting_cache_sizes_are_refused(tiny_core: Path) -> None:
    options = WorkerOptions(core="c", accept="tests", cache_nbytes=1, cache_share=0.5)
    with pytest.raises(ContractError, match="in bytes and as a share"):
        asked_capacities(options)
