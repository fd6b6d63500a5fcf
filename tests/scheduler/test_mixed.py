"""Rounds that decode and prefill in one program: when they are made; they change no token."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.runtime.geometry import HistoryRules, Operation, ProgramInfo
from helios.scheduler import Request, SchedulerOptions
from helios.scheduler.costs import SETTLED, STALE_NS
from tests.scheduler.driving import Driver, request
from tests.scheduler.fake_model import FakeModel, alone, geometry, scores_alone
from tests.scheduler.test_turns import LONG, STEP_MS, beside_eight, cost_ns, roomy, worst_gap_ms
from tests.scheduler.timed import MS, PROMPTS, TimedDriver

MIXED = ((96, 17), (528, 17))


def cheap(program: ProgramInfo, lanes: int, tokens: int) -> int:
    """A MIXED round costs its decoding lanes little more than the chunk alone."""
    if program.operation is Operation.MIXED:
        return 3 * MS + MS * tokens // 3 + MS * (lanes - 1) // 4
    return cost_ns(program, lanes, tokens)


def dear(program: ProgramInfo, lanes: int, tokens: int) -> int:
    """A MIXED round costs more than its parts."""
    return cost_ns(program, lanes, tokens) + 9 * MS * (program.operation is Operation.MIXED)


def eight_and_one(driver: TimedDriver) -> TimedDriver:
    driver.submit(*(request(i, prompt=8, limit=2000) for i in range(8)))
    while min(len(driver.got[i].tokens) for i in range(8)) < 4:
        driver.turn()
    driver.submit(request(99, prompt=LONG, limit=2))
    while not driver.got[99].tokens:
        driver.turn()
    return driver


def kinds(driver: TimedDriver) -> list[Operation]:
    return [c.program.operation for c in driver.contended]


def test_a_round_of_both_is_made_where_it_takes_less_time_than_two() -> None:
    driver = eight_and_one(TimedDriver(roomy(mixed=MIXED), cheap))
    made = kinds(driver)
    assert made.count(Operation.MIXED) > 20
    assert sum(kind in PROMPTS for kind in made) <= 4, "only to be measured"
    assert (
        driver.got[0].tokens == alone(request(0, prompt=8, limit=2000))[0][: len(driver.came_ns[0])]
    )
    assert driver.got[99].tokens == alone(request(99, prompt=LONG, limit=2))[0][:1]


def test_it_is_measured_and_then_left_where_it_takes_more() -> None:
    driver = eight_and_one(TimedDriver(roomy(mixed=MIXED), dear))
    made = kinds(driver)
    assert 1 <= made.count(Operation.MIXED) <= SETTLED * len(MIXED)
    assert sum(kind in PROMPTS for kind in made) > 20


def test_a_round_of_both_that_was_held_up_doesnt_speak_for_others() -> None:
    held_up = False

    def first_held_up(program: ProgramInfo, lanes: int, tokens: int) -> int:
        nonlocal held_up
        cost = cheap(program, lanes, tokens)
        if program.operation is Operation.MIXED and not held_up:
            held_up = True
            cost *= 20
        return cost

    driver = TimedDriver(roomy(mixed=MIXED), cheap)
    driver.model.cost_ns = first_held_up
    assert kinds(eight_and_one(driver)).count(Operation.MIXED) > 20


def test_it_is_tried_again_when_its_measurement_is_stale() -> None:
    driver = eight_and_one(TimedDriver(roomy(mixed=MIXED), dear))
    before = driver.model.programs_run.count("mixed.p96")
    driver.model.clock_ns += 2 * STALE_NS
    driver.submit(request(100, prompt=LONG, limit=2))
    while not driver.got[100].tokens:
        driver.turn()
    assert before < driver.model.programs_run.count("mixed.p96") <= before + SETTLED


def test_a_prompt_is_admitted_sooner_within_the_same_bound() -> None:
    waits = []
    for shape in (roomy(), roomy(mixed=MIXED)):
        driver = TimedDriver(shape, cheap, SchedulerOptions(max_step_ms=20.0, prefill_share=0.7))
        driver.came_ns[99].append(0)
        eight_and_one(driver)
        assert worst_gap_ms(driver, after=12) <= 20.0 * 1.05
        waits.append(driver.came_ns[99][-1])
    assert waits[1] < waits[0]


def test_steps_stay_short_without_any_option() -> None:
    driver = beside_eight(SchedulerOptions(), roomy(mixed=MIXED))
    assert worst_gap_ms(driver) <= 5 * STEP_MS * 1.2


def test_more_decoding_lanes_than_fit_beside_a_chunk_take_turns_with_it() -> None:
    driver = eight_and_one(TimedDriver(roomy(mixed=((96, 8),)), cheap))
    assert Operation.MIXED not in kinds(driver)


def test_the_last_lane_is_the_prompt_and_its_last_chunk_gives_a_token() -> None:
    driver = Driver(FakeModel(geometry(mixed=((12, 4),))))
    driver.model.cost_ns = lambda program, lanes, tokens: (
        MS if program.operation is Operation.MIXED else 3 * MS
    )
    first, second = request(1, prompt=3, limit=20), request(2, prompt=30, limit=6)
    driver.submit(first)
    while len(driver.got[1].tokens) < 2:
        driver.turn()
    driver.submit(second)
    launched = driver.drain()
    assert launched.count("mixed.p12") >= 2
    for one in (first, second):
        got = driver.got[one.request_id]
        assert (got.tokens, got.logprobs, got.finish) == alone(one)


@given(
    requests=st.lists(
        st.tuples(
            st.integers(1, 20),
            st.integers(1, 12),
            st.booleans(),
            st.integers(0, 22),
            st.integers(0, 6),
        ),
        min_size=2,
        max_size=8,
    ),
    pages=st.integers(8, 20),
    slots=st.integers(2, 5),
    mixed=st.sampled_from([((6, 3),), ((4, 2), (20, 5)), ((2, 2),), ((9, 6),)]),
    fed=st.sets(st.sampled_from([Operation.DECODE, Operation.MIXED])),
    frames=st.sampled_from([1, 2]),
    history=st.sampled_from([HistoryRules(), HistoryRules(starts_at_pages=True)]),
    bound=st.sampled_from([None, 1.5, 4.0]),
)
@settings(deadline=None, max_examples=150)
def test_tokens_are_those_of_each_request_alone(
    requests: list[tuple[int, int, bool, int, int]],
    pages: int,
    slots: int,
    mixed: tuple[tuple[int, int], ...],
    fed: set[Operation],
    frames: int,
    history: HistoryRules,
    bound: float | None,
) -> None:
    shape = geometry(slots=slots, pages=pages, mixed=mixed, scored=((6, 4),), host_fed=fed)
    driver = Driver(
        FakeModel(replace(shape, history=history)),
        SchedulerOptions(frames_in_flight=frames, max_step_ms=bound),
    )
    driver.model.cost_ns = lambda program, lanes, tokens: (
        MS if program.operation is Operation.MIXED else 3 * MS
    )
    submitted: list[Request] = []
    for number, (prompt, limit, scored, eos, turns) in enumerate(requests):
        one = replace(request(number, prompt, limit, eos_ids=(eos,)), score_prompt=scored)
        driver.submit(one)
        submitted.append(one)
        for _ in range(turns):
            driver.turn()
    driver.drain()
    for one in submitted:
        got = driver.got[one.request_id]
        assert (got.tokens, got.logprobs, got.finish) == alone(one)
        assert got.scores == (scores_alone(one.prompt) if one.score_prompt else None)


def test_a_scored_prompt_goes_by_itself() -> None:
    shape = geometry(mixed=((12, 4),), scored=((6, 4),))
    driver = Driver(FakeModel(shape))
    driver.model.cost_ns = lambda program, lanes, tokens: (
        MS if program.operation is Operation.MIXED else 3 * MS
    )
    driver.submit(request(1, prompt=3, limit=20))
    while len(driver.got[1].tokens) < 2:
        driver.turn()
    driver.submit(replace(request(2, prompt=19, limit=2), score_prompt=True))
    launched = driver.drain()
    assert "mixed.p12" not in launched
    assert driver.got[2].scores == scores_alone(request(2, prompt=19).prompt)


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_every_decoding_lane_gets_its_token(lanes: int) -> None:
    driver = Driver(FakeModel(geometry(slots=4, pages=60, mixed=((12, 4),))))
    driver.model.cost_ns = lambda program, lanes, tokens: (
        MS if program.operation is Operation.MIXED else 3 * MS
    )
    driver.submit(*(request(i, prompt=3, limit=20) for i in range(lanes)))
    while min(len(driver.got[i].tokens) for i in range(lanes)) < 2:
        driver.turn()
    driver.submit(request(9, prompt=30, limit=2))
    while not driver.got[9].tokens:
        driver.turn()
    mixed = [
        count
        for name, count in zip(
            driver.model.programs_run, driver.model.lanes_submitted, strict=False
        )
        if name == "mixed.p12"
    ]
    assert mixed
    assert set(mixed) == {lanes + 1}
    driver.drain()
