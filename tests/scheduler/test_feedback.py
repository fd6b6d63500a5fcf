"""Which completions have to come in before another round is planned, and which don't."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.runtime.geometry import Geometry, Operation
from helios.scheduler import Finish, Request, SchedulerOptions
from helios.scheduler.costs import STALE_NS
from tests.scheduler.driving import Driver, request
from tests.scheduler.fake_model import FakeModel, alone, geometry


def fed_by_host(shape: Geometry, *names: str) -> Geometry:
    """The geometry with these programs taking their pending tokens from the host."""
    return replace(
        shape,
        programs=tuple(replace(p, host_fed=p.host_fed or p.name in names) for p in shape.programs),
    )


def launch_all(driver: Driver) -> list[str]:
    """Launches what can go on; the programs' names."""
    launched: list[str] = []
    while driver.scheduler.can_plan() and (name := driver.launch()) is not None:
        launched.append(name)
    return launched


def until_decoding(driver: Driver, *requests: Request) -> None:
    """Brings the requests to where all of them decode and nothing is in flight."""
    driver.submit(*requests)
    while not all(driver.got[one.request_id].tokens for one in requests):
        driver.turn()
    while driver.sequences:
        driver.complete()


def in_flight_from_here(driver: Driver) -> set[int]:
    """How many rounds are in flight when nothing more can be planned, turn by turn, to the end."""
    seen: set[int] = set()
    while not driver.scheduler.idle:
        launch_all(driver)
        seen.add(driver.scheduler.frames_in_flight)
        driver.complete()
    return seen


def as_alone(driver: Driver, *requests: Request) -> bool:
    return all(
        (got.tokens, got.logprobs, got.finish) == alone(one)
        for one in requests
        for got in [driver.got[one.request_id]]
    )


@pytest.mark.clause("SPEC-8")
def test_two_rounds_are_in_flight_in_steady_state() -> None:
    driver = Driver()
    requests = [request(i, prompt=3, limit=12) for i in range(3)]
    until_decoding(driver, *requests)
    for _ in range(6):
        launch_all(driver)
        assert driver.model.queued == 2
        assert driver.scheduler.frames_in_flight == 2
        driver.complete()
    driver.drain()
    assert as_alone(driver, *requests)


@pytest.mark.clause("SPEC-8")
@pytest.mark.clause("BIND-12")
def test_a_pending_token_from_the_host_waits_for_the_completion_that_has_it() -> None:
    driver = Driver(FakeModel(geometry(host_fed=[Operation.DECODE])))
    requests = [request(i, prompt=3, limit=8) for i in range(3)]
    until_decoding(driver, *requests)
    assert in_flight_from_here(driver) == {1}
    assert as_alone(driver, *requests)
    assert driver.scheduler.counters.empty_lanes == 0


@pytest.mark.clause("SPEC-8")
@pytest.mark.clause("BIND-12")
def test_what_is_waited_for_follows_from_the_program_used_not_from_others() -> None:
    shape = fed_by_host(geometry(), "decode.b4")
    one, *others = [request(i, prompt=3, limit=8 + 4 * (i == 0)) for i in range(3)]
    driver = Driver(FakeModel(shape))
    until_decoding(driver, one, *others)
    for _ in range(4):
        assert launch_all(driver) == ["decode.b4"]
        driver.complete()
    while driver.scheduler.running > 1:
        launch_all(driver)
        driver.complete()
    assert in_flight_from_here(driver) >= {2}, "decode.b1 needs nothing from the host"
    assert as_alone(driver, one, *others)


def test_lanes_that_the_host_feeds_go_together() -> None:
    driver = Driver(FakeModel(geometry(host_fed=[Operation.DECODE], decode=(1, 4))))
    requests = [request(i, prompt=3, limit=9) for i in range(2)]
    until_decoding(driver, *requests)
    launch_all(driver)
    late = request(9, prompt=3, limit=6)
    driver.submit(late)
    driver.drain()
    lanes = [
        lanes
        for name, lanes in zip(driver.model.programs_run, driver.model.lanes_submitted, strict=True)
        if name.startswith("decode")
    ]
    # The late one joins the others: from then on each round has all three.
    assert lanes.count(3) >= 5
    assert as_alone(driver, *requests, late)


def test_more_lanes_than_a_program_has_take_turns_in_two_frames_though_the_host_feeds_them() -> (
    None
):
    driver = Driver(FakeModel(geometry(slots=4, host_fed=[Operation.DECODE], decode=(1, 2))))
    requests = [request(i, prompt=2, limit=9) for i in range(4)]
    until_decoding(driver, *requests)
    launch_all(driver)
    assert driver.scheduler.frames_in_flight == 2
    driver.drain()
    assert as_alone(driver, *requests)


def test_a_prompt_goes_on_while_lanes_wait_for_their_tokens() -> None:
    driver = Driver(
        FakeModel(geometry(host_fed=[Operation.DECODE])),
        SchedulerOptions(prefill_chunk_tokens=4, prefill_share=0.9),
    )
    until_decoding(driver, request(1, prompt=2, limit=12))
    driver.submit(request(2, prompt=20, limit=2))
    pairs: set[tuple[str, ...]] = set()
    while not driver.got[2].tokens:
        driver.turn()
        pairs.add(tuple(name.split(".")[0] for name in launch_all(driver)))
    assert any("prefill" in pair for pair in pairs)
    driver.drain()
    assert as_alone(driver, request(1, prompt=2, limit=12), request(2, prompt=20, limit=2))


@pytest.mark.clause("SPEC-8")
def test_the_first_token_is_known_before_its_request_goes_on_and_others_dont_wait() -> None:
    driver = Driver()
    until_decoding(driver, request(1, prompt=3, limit=12))
    driver.submit(request(2, prompt=3, limit=4))
    while driver.launch() != "prefill.p4":
        driver.complete()
    while driver.scheduler.frames_in_flight > 1:
        driver.complete()  # what was before the prompt
    planned = driver.scheduler.plan()
    assert planned is not None
    assert [r.progress.request.request_id for r in planned.residents] == [1]
    driver.sequences.append(driver.model.submit(planned.round))
    driver.scheduler.begin(planned, driver.sequences[-1])
    driver.complete()
    assert driver.got[2].tokens
    planned = driver.scheduler.plan()
    assert planned is not None
    assert len(planned.residents) == 2


def test_a_request_whose_first_token_is_its_last_costs_no_empty_lane() -> None:
    one = request(1, prompt=3, limit=9, eos_ids=(alone(request(1, 3, 9))[0][0],))
    driver = Driver()
    driver.submit(one)
    driver.drain()
    assert driver.got[1].finish is Finish.EOS
    assert driver.scheduler.counters.empty_lanes == 0


@pytest.mark.clause("SPEC-8")
@given(
    shapes=st.lists(
        st.tuples(st.integers(1, 12), st.integers(1, 10), st.integers(0, 22)),
        min_size=1,
        max_size=6,
    ),
    frames=st.sampled_from([1, 2]),
)
@settings(deadline=None, max_examples=60)
def test_a_request_that_ended_on_the_device_costs_at_most_one_empty_lane(
    shapes: list[tuple[int, int, int]], frames: int
) -> None:
    requests = [
        request(i, prompt, limit, eos_ids=(eos, (eos + 5) % 23))
        for i, (prompt, limit, eos) in enumerate(shapes)
    ]
    driver = Driver(FakeModel(geometry(pages=60)), SchedulerOptions(frames_in_flight=frames))
    driver.submit(*requests)
    driver.drain()
    assert as_alone(driver, *requests)
    ended_early = sum(driver.got[one.request_id].finish is Finish.EOS for one in requests)
    assert driver.scheduler.counters.empty_lanes <= (ended_early if frames == 2 else 0)


@pytest.mark.clause("SPEC-8")
def test_a_request_that_the_host_may_stop_leaves_one_round_in_flight() -> None:
    driver = Driver()
    other = request(1, prompt=3, limit=14)
    stopping = replace(request(2, prompt=3, limit=5), host_stops=True)
    until_decoding(driver, other)
    launch_all(driver)
    assert driver.scheduler.frames_in_flight == 2
    driver.submit(stopping)
    while not driver.got[2].ended:
        driver.complete()
        launched = launch_all(driver)
        assert driver.scheduler.frames_in_flight == 1 or driver.got[2].ended, launched
    assert in_flight_from_here(driver) >= {2}, "two rounds again once it has ended"
    assert as_alone(driver, other, stopping)


def test_a_host_stop_is_decided_before_another_round() -> None:
    driver = Driver()
    driver.submit(replace(request(1, prompt=3, limit=9), host_stops=True))
    while len(driver.got[1].tokens) < 3:
        driver.turn()
    rounds = len(driver.model.lanes_submitted)
    driver.cancel(1)
    driver.drain()
    assert len(driver.model.lanes_submitted) == rounds
    assert driver.scheduler.counters.empty_lanes == 0


def test_a_stopping_request_that_waits_for_a_slot_holds_nobody_up() -> None:
    driver = Driver(FakeModel(geometry(slots=1)))
    until_decoding(driver, request(1, prompt=3, limit=9))
    driver.submit(replace(request(2, prompt=3, limit=2), host_stops=True))
    launch_all(driver)
    assert driver.scheduler.frames_in_flight == 2


@pytest.mark.clause("SPEC-8")
def test_a_choice_that_rests_on_an_unmeasured_cost_measures_it_alone() -> None:
    driver = Driver(options=SchedulerOptions(prefill_chunk_tokens=4))
    until_decoding(driver, request(1, prompt=2, limit=25))
    driver.submit(request(2, prompt=16, limit=12), request(3, prompt=16, limit=2))
    in_flight: list[int] = []
    while not driver.got[3].tokens:
        if "decode.b2" in launch_all(driver):
            in_flight.append(driver.scheduler.frames_in_flight)
        driver.complete()
    assert in_flight[0] == 1, "two lanes were never decoded before"
    assert 2 in in_flight[1:]


@pytest.mark.clause("SPEC-8")
def test_a_choice_that_rests_on_a_stale_cost_measures_it_alone() -> None:
    driver = Driver(options=SchedulerOptions(prefill_chunk_tokens=4))
    until_decoding(driver, request(1, prompt=8, limit=25))
    driver.model.clock_ns += 2 * STALE_NS
    launch_all(driver)
    driver.complete()
    driver.complete()
    # The decode program has been measured since, prompts' programs haven't.
    driver.submit(request(2, prompt=16, limit=2))
    in_flight: list[int] = []
    while not driver.got[2].tokens:
        launched = launch_all(driver)
        if any(name.startswith("prefill") for name in launched):
            in_flight.append(driver.scheduler.frames_in_flight)
        driver.complete()
    assert in_flight[0] == 1
    assert 2 in in_flight[1:]


def test_nothing_is_measured_for_its_own_sake() -> None:
    driver = Driver()
    until_decoding(driver, request(1, prompt=3, limit=12))
    driver.model.clock_ns += 2 * STALE_NS
    assert in_flight_from_here(driver) >= {2}
