"""A core with two ranks: each has its resources and memory, and rounds run in step."""

from __future__ import annotations

import numpy as np
import pytest

from helios.core import OpenedCore
from helios.errors import ExecutionError
from helios.runtime import NativeModel
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rank_group import RankGroup
from helios.runtime.rounds import LaneCompletion, Round
from tests.runtime.ranks.ranked import (
    ONE_THREAD,
    SMALL,
    WriteCore,
    run,
    shifted,
)
from tests.runtime.test_model_runtime import (
    SECOND_MS,
    admitted,
    next_token,
    prompt,
    step,
)


def told(runtime: ModelRuntime | RankGroup) -> list[tuple[LaneCompletion, ...]]:
    """What a few requests get."""
    return [
        run(runtime, "initialize.b4", admitted(0), admitted(3, eos=(next_token(6),))).lanes,
        run(runtime, "prefill.p8", prompt(0, (4, 5, 6)), prompt(3, (6,))).lanes,
        run(runtime, "decode.b2", step(3, 1), step(0, 3)).lanes,
        run(runtime, "initialize.b4", admitted(3, 2, limit=1)).lanes,
        run(runtime, "prefill.p16", prompt(3, (1, 2, 3, 4, 5), 2)).lanes,
        run(runtime, "decode.b2", step(0, 4), step(3, 5, 2)).lanes,
    ]


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_two_ranks_say_what_one_says(core: OpenedCore, ranked: WriteCore, target: str) -> None:
    with (
        NativeModel.load(core, target=target, options=ONE_THREAD, capacities=SMALL) as one,
        NativeModel.load(ranked(), target=target, options=ONE_THREAD, capacities=SMALL) as two,
    ):
        assert isinstance(two.runtime, RankGroup)
        assert told(two.runtime) == told(one.runtime)
        for rank in two.ranks:
            for name in ("request_state", "page_table", "logits", "in.tokens"):
                expected = one.runtime.read_buffer(name)
                assert np.array_equal(rank.read_buffer(name), expected), name
        assert two.runtime.launches() == 2 * one.runtime.launches()
        assert two.runtime.memory == {k: 2 * n for k, n in one.runtime.memory.items()}


@pytest.mark.clause("BOOT-1")
def test_each_rank_loads_its_own_resources_into_memory_of_its_own(ranked: WriteCore) -> None:
    core = ranked(weights={1: shifted})
    first, second = core.targets["cpu"].ranks
    assert first.weight_resources != second.weight_resources
    with NativeModel.load(core, options=ONE_THREAD, capacities=SMALL) as model:
        assert [geometry.cache_pages for geometry in model.manifests] == [24, 24]
        assert model.runtime.geometry.cache_nbytes == 2 * 24 * 64
        answers = []
        for rank in model.ranks:  # each by itself
            run(rank, "initialize.b4", admitted(0))
            answers.append(run(rank, "prefill.p8", prompt(0, (4,))).lanes[0].tokens)
        assert answers[0] == (next_token(4),)
        assert answers[1] != answers[0]
        page = model.ranks[1].cache_content.page_nbytes
        model.ranks[1].cache_content.write_page(2, b"\1" * page)
        assert bytes(model.ranks[0].cache_content.read_page(2)) == bytes(page)


def test_two_rounds_are_in_flight_on_both(ranked: WriteCore) -> None:
    with NativeModel.load(ranked(), options=ONE_THREAD) as model:
        runtime = model.runtime
        run(runtime, "initialize.b4", admitted(0), admitted(1))
        first = runtime.submit(Round(1, (prompt(0, (4,)),)))
        second = runtime.submit(Round(1, (prompt(1, (5,)),)))
        assert not runtime.can_submit()
        with pytest.raises(ExecutionError, match=r"rank 0, round 4: frame 0 is in use"):
            runtime.submit(Round(0, (admitted(2),)))
        assert runtime.wait(second, SECOND_MS)
        assert runtime.completed(first)
        assert runtime.read(second).lanes[0].tokens == (next_token(5),)
        answer = runtime.read(first)
        assert answer.lanes[0].tokens == (next_token(4),)
        assert (answer.started_ns, answer.completed_ns) == runtime.timing(first)
        starts, ends = zip(*(rank.timing(first) for rank in model.ranks), strict=True)
        assert runtime.timing(first) == (min(starts), max(ends))
        with pytest.raises(ExecutionError, match=r"rank 0, round 2: is not in flight"):
            runtime.read(first)
        assert runtime.can_submit()


def test_what_is_refused_is_submitted_nowhere(ranked: WriteCore) -> None:
    with NativeModel.load(ranked(), options=ONE_THREAD) as model:
        with pytest.raises(ExecutionError, match=r"rank 0, .*not distinct"):
            model.runtime.submit(Round(0, (admitted(0), admitted(0))))
        assert model.runtime.submit(Round(0, (admitted(0),))) == 1


def test_pages_and_snapshots_are_those_of_every_rank(ranked: WriteCore, core: OpenedCore) -> None:
    with (
        NativeModel.load(ranked(), options=ONE_THREAD, capacities=SMALL) as model,
        NativeModel.load(core, options=ONE_THREAD, capacities=SMALL) as alone,
    ):
        content, own = model.runtime.cache_content, [r.cache_content for r in model.ranks]
        nbytes = own[0].page_nbytes
        assert content.page_nbytes == 2 * nbytes
        assert content.layout_digest != alone.runtime.cache_content.layout_digest
        page = bytes(range(2 * nbytes))
        content.write_page(5, page)
        assert bytes(own[0].read_page(5)) == page[:nbytes]
        assert bytes(own[1].read_page(5)) == page[nbytes:]
        assert bytes(content.read_page(5)) == page
        for wrong in (page[:-1], page + b"\0"):
            with pytest.raises(ExecutionError, match=rf"page 5: {len(wrong)} bytes of content"):
                content.write_page(5, wrong)
        assert bytes(content.read_page(5)) == page
        with pytest.raises(ExecutionError, match="rank 0, page 24: there are 24"):
            content.read_page(24)
