"""Random workloads over every kind of history: prompts that share prefixes and have boundaries,
small caches, few snapshots, cancellations, priorities, rounds that run as late as they may or a
little earlier. Every answer is held against what its tokens alone make of it; books are checked
after each act."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helios.scheduler import Finish, SchedulerOptions
from tests.synthetic.driving import Serving, few_pages
from tests.synthetic.histories import HISTORIES, VOCABULARY, History
from tests.synthetic.model import CONTEXT_TOKENS

# Few stems, so that prompts share prefixes of every length.
_STEMS = tuple(
    tuple((step * i + step) % VOCABULARY for i in range(CONTEXT_TOKENS)) for step in (1, 3)
)


@st.composite
def _prompts(draw: st.DrawFn) -> tuple[int, ...]:
    stem = draw(st.sampled_from(_STEMS))
    shared = stem[: draw(st.integers(0, 24))]
    own = tuple(draw(st.lists(st.integers(0, VOCABULARY - 1), max_size=6)))
    return (shared + own) or (1,)


_ACTS = st.one_of(
    st.tuples(
        st.just("submit"),
        _prompts(),
        st.integers(1, 10),
        st.integers(0, 2),
        st.sets(st.integers(1, 29), max_size=4),
    ),
    st.tuples(st.just("turn")),
    st.tuples(st.just("launch")),
    st.tuples(st.just("run")),
    st.tuples(st.just("complete")),
    st.tuples(st.just("cancel"), st.integers(1, 30)),
    st.tuples(st.just("again"), st.integers(1, 30), st.integers(1, 6)),
    st.tuples(st.just("reset")),
)


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    acts=st.lists(_ACTS, max_size=60),
    pages=st.integers(10, 24),
    snapshots=st.integers(1, 4),
    frames=st.integers(1, 2),
)
@pytest.mark.clause("CACHE-4", "CACHE-7", "CACHE-8")
def test_workload(
    history: History, acts: list[tuple[object, ...]], pages: int, snapshots: int, frames: int
) -> None:
    serving = Serving(
        history,
        capacities=few_pages(history, pages, snapshots) if history.paged else None,
        options=SchedulerOptions(frames_in_flight=frames),
    )
    cancelled: set[int] = set()
    for act in acts:
        match act:
            case ("submit", tuple() as prompt, int() as limit, int() as eos, set() as cuts):
                boundaries = tuple(sorted(cut for cut in cuts if cut < len(prompt)))
                serving.submit(
                    prompt, limit, seed=limit, eos_ids=tuple(range(eos)), boundaries=boundaries
                )
            case ("turn",):
                if not serving.scheduler.idle or serving.rounds_in_flight:
                    serving.turn()
            case ("launch",):
                serving.launch()
            case ("run",):
                serving.device.run_next()
            case ("complete",):
                if serving.rounds_in_flight:
                    serving.complete()
            case ("cancel", int() as number):
                if number in serving.requests and serving.got[number].finish is None:
                    serving.cancel(number)
                    cancelled.add(number)
            case ("again", int() as number, int() as limit):
                # The next turn of a conversation: what was asked, what came, and one more.
                if number in serving.requests and serving.got[number].finish is Finish.LIMIT:
                    prompt = (*serving.requests[number].prompt, *serving.got[number].tokens, 7)
                    if len(prompt) + limit <= CONTEXT_TOKENS:
                        serving.submit(prompt, limit)
            case ("reset",):
                serving.scheduler.reset_cache()
    serving.drain()
    for number in serving.requests:
        serving.check(number)
        finished = serving.got[number].finish
        assert (finished is Finish.CANCELLED) == (number in cancelled)
