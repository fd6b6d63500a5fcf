"""Which rounds the scheduler makes: batching, packing, chunking, turns, two frames in flight."""

from __future__ import annotations

import pytest

from helios.errors import ContractError, HeliosError
from helios.scheduler import Finish, Request, Scheduler, SchedulerOptions
from tests.scheduler.driving import Driver, request
from tests.scheduler.fake_model import FakeModel, alone, geometry


def assert_all_as_alone(driver: Driver, *requests: Request) -> None:
    for one in requests:
        got = driver.got[one.request_id]
        tokens, logprobs, finish = alone(one)
        assert (got.tokens, got.logprobs, got.finish) == (tokens, logprobs, finish)


def test_a_request_runs_to_its_limit() -> None:
    driver = Driver()
    one = request(1, prompt=5, limit=3)
    driver.submit(one)
    assert driver.drain() == ["initialize.b1", "prefill.p16", "decode.b1", "decode.b1"]
    assert_all_as_alone(driver, one)
    assert driver.got[1].finish is Finish.LIMIT


def test_requests_that_wait_are_initialised_and_prefilled_together() -> None:
    driver = Driver()
    requests = [request(i, prompt=3, limit=2) for i in range(3)]
    driver.submit(*requests)
    assert driver.drain() == ["initialize.b4", "prefill.p16", "decode.b4"]
    assert_all_as_alone(driver, *requests)


def test_the_smallest_program_that_fits_is_taken() -> None:
    driver = Driver()
    driver.submit(request(1, prompt=4, limit=1))
    assert driver.drain() == ["initialize.b1", "prefill.p4"]


def test_a_prompt_longer_than_the_largest_program_is_chunked() -> None:
    driver = Driver(FakeModel(geometry(pages=12, context=48)))
    one = request(1, prompt=37, limit=2)
    driver.submit(one)
    assert driver.drain() == [
        "initialize.b1",
        "prefill.p16",
        "prefill.p16",
        "prefill.p16",
        "decode.b1",
    ]
    assert_all_as_alone(driver, one)


@pytest.mark.parametrize("chunk", [1, 3, 4, 7, 16, 100])
def test_the_chunk_budget_changes_rounds_and_no_tokens(chunk: int) -> None:
    driver = Driver(options=SchedulerOptions(prefill_chunk_tokens=chunk))
    requests = [request(i, prompt=6 + i, limit=5, eos_ids=(i,)) for i in range(4)]
    driver.submit(*requests)
    launched = driver.drain()
    prefills = sum(name.startswith("prefill") for name in launched)
    assert prefills == -(-sum(6 + i for i in range(4)) // min(chunk, 16))
    assert_all_as_alone(driver, *requests)


def test_a_round_is_planned_before_the_one_before_it_has_run() -> None:
    driver = Driver()
    one = request(1, prompt=2, limit=6)
    driver.submit(one)
    assert driver.launch() == "initialize.b1"
    assert driver.launch() == "prefill.p4"
    assert driver.model.queued == 2
    assert not driver.scheduler.can_plan()
    driver.complete()
    driver.complete()
    assert driver.launch() == "decode.b1"
    assert driver.launch() == "decode.b1"
    assert driver.model.queued == 2
    driver.drain()
    assert_all_as_alone(driver, one)


def test_one_frame_plans_after_completion_only() -> None:
    driver = Driver(options=SchedulerOptions(frames_in_flight=1))
    one = request(1, prompt=2, limit=6, eos_ids=(alone(request(1, 2, 6))[0][2],))
    driver.submit(one)
    driver.launch()
    assert not driver.scheduler.can_plan()
    driver.drain()
    assert_all_as_alone(driver, one)
    assert driver.scheduler.counters.empty_lanes == 0


def test_a_lane_that_ended_on_the_device_costs_one_empty_lane() -> None:
    tokens = alone(request(1, prompt=3, limit=9))[0]
    one = request(1, prompt=3, limit=9, eos_ids=(tokens[3],))
    length = tokens.index(tokens[3]) + 1
    driver = Driver()
    driver.submit(one)
    driver.drain()
    assert driver.got[1].finish is Finish.EOS
    assert len(driver.got[1].tokens) == length
    assert driver.scheduler.counters.empty_lanes == 1


def test_a_lane_that_reaches_its_limit_by_count_is_not_scheduled_again() -> None:
    driver = Driver()
    driver.submit(request(1, prompt=3, limit=4), request(2, prompt=3, limit=4))
    driver.drain()
    assert driver.scheduler.counters.empty_lanes == 0
    assert sum(name.startswith("decode") for name in driver.model.programs_run) == 3


def test_more_decoding_residents_than_lanes_take_turns() -> None:
    driver = Driver(FakeModel(geometry(slots=5, decode=(1, 2))))
    requests = [request(i, prompt=2, limit=5) for i in range(5)]
    driver.submit(*requests)
    while not driver.scheduler.idle:
        driver.turn()
        counts = [len(got.tokens) for got in driver.got.values()]
        assert max(counts) - min(counts) <= 2
    driver.drain()
    assert_all_as_alone(driver, *requests)
    decodes = [
        lanes
        for name, lanes in zip(driver.model.programs_run, driver.model.lanes_submitted, strict=True)
        if name.startswith("decode")
    ]
    assert sum(decodes) == 5 * 4
    assert len(decodes) <= 5 * 4 // 2 + 2


def test_more_requests_than_slots_wait_for_their_turn() -> None:
    driver = Driver(FakeModel(geometry(slots=2)))
    requests = [request(i, prompt=4, limit=3) for i in range(7)]
    driver.submit(*requests)
    driver.turn()
    assert driver.scheduler.running == 2
    assert driver.scheduler.waiting == 5
    driver.drain()
    assert_all_as_alone(driver, *requests)


def test_a_geometry_without_decode_is_refused() -> None:
    with pytest.raises(ContractError, match="DECODE"):
        Scheduler(geometry(decode=()))


@pytest.mark.parametrize(
    "values",
    [
        {"prefill_chunk_tokens": 0},
        {"frames_in_flight": 3},
        {"queue_capacity": 0},
        {"max_step_ms": 0.0},
        {"max_step_ms": -1.0},
        {"max_step_ms": float("nan")},
        {"max_step_ms": float("inf")},
        {"prefill_share": 0.0},
        {"prefill_share": 0.96},
        {"prefill_share": float("nan")},
    ],
)
def test_options_out_of_range_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(HeliosError, match=next(iter(values))):
        SchedulerOptions(**values)  # type: ignore[arg-type]
