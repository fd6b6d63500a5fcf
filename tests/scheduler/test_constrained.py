"""Requests that follow a grammar: what their rounds wait for, and tokens that must come."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.errors import AdmissionError
from helios.runtime.geometry import Operation
from helios.scheduler import Finish, Request, SchedulerOptions
from tests.scheduler.constrained import (
    GrammarDriver,
    allowed,
    constrained,
    constrained_alone,
    forced,
    forcing_model,
)
from tests.scheduler.driving import request
from tests.scheduler.fake_model import FakeModel, alone, likeliest
from tests.scheduler.histories import NOTHING, PAGES, PARTIAL_PAGES, ROWS, History
from tests.scheduler.test_feedback import in_flight_from_here, until_decoding


def assert_as_alone(driver: GrammarDriver, *requests: Request) -> None:
    """Each got what it gets alone, sampled one by one."""
    for one in requests:
        got = driver.got[one.request_id]
        expected = constrained_alone(one) if one.constrained else alone(one)
        assert (got.tokens, got.logprobs, got.finish) == expected
        assert got.failure is None


@pytest.mark.clause("SPEC-8")
def test_a_constrained_request_leaves_one_round_in_flight() -> None:
    driver = GrammarDriver(forces=lambda *_: False)
    other, one = request(1, prompt=3, limit=22), constrained(2, prompt=3, limit=7)
    until_decoding(driver, other)
    driver.launch()
    driver.submit(one)
    while not driver.got[2].ended:
        driver.complete()
        while driver.scheduler.can_plan() and driver.launch() is not None:
            pass
    assert driver.most_in_flight == 1
    assert driver.scheduler.counters.constrained_max_inflight == 1
    assert in_flight_from_here(driver) >= {2}, "two rounds again once it has ended"
    assert_as_alone(driver, other, one)


@pytest.mark.clause("OBS-7")
def test_the_most_rounds_in_flight_are_those_right_after_a_constrained_submission() -> None:
    driver = GrammarDriver()
    free = [request(i, prompt=3, limit=9) for i in range(2)]
    driver.submit(*free)
    driver.drain()
    assert driver.scheduler.counters.constrained_max_inflight == 0
    one = constrained(5, prompt=14, limit=12)
    driver.submit(one, *[request(i, prompt=3, limit=20) for i in (7, 8)])
    driver.drain()
    assert driver.scheduler.counters.constrained_max_inflight == 1


@pytest.mark.clause("OBS-7")
@pytest.mark.parametrize("mixed", [(), ((16, 4),)], ids=["apart", "mixed"])
def test_decode_rounds_with_both_kinds_of_lanes_are_counted(
    mixed: tuple[tuple[int, int], ...],
) -> None:
    driver = GrammarDriver(forcing_model(mixed=mixed), forces=lambda *_: False)
    requests = [constrained(1, 3, 8), constrained(2, 3, 12), request(3, 3, 16), request(4, 20, 5)]
    expected = 0
    driver.submit(*requests)
    while not driver.scheduler.idle:
        while driver.scheduler.can_plan() and driver.launch() is not None:
            planned = driver.in_flight[-1]
            kinds = {
                resident.progress.request.constrained
                for resident, lane in zip(planned.residents, planned.round.lanes, strict=True)
                if not lane.tokens
            }
            operation = planned.program.operation
            expected += operation in (Operation.DECODE, Operation.MIXED) and len(kinds) == 2
        driver.complete()
    counted = driver.scheduler.counters.mixed_grammar_decode_steps
    assert counted == expected > 0
    assert_as_alone(driver, *requests)
    # A free prompt beside constrained lanes is none of them.
    until_decoding(driver, constrained(11, 3, 30))
    driver.submit(request(12, 30, 1))
    driver.drain()
    assert any("mixed" in name for name in driver.model.programs_run) == bool(mixed)
    assert driver.scheduler.counters.mixed_grammar_decode_steps == counted
    for others in ([constrained(i, 3, 9) for i in range(3)], [request(i, 3, 9) for i in range(3)]):
        driver.submit(*others)
        driver.drain()
    assert driver.scheduler.counters.mixed_grammar_decode_steps == counted


# ---------------------------------------------------------------- tokens that must come


def test_tokens_that_must_come_take_one_round_and_no_decode_rounds() -> None:
    one = constrained(1, prompt=3, limit=19)
    sampled = GrammarDriver(forces=lambda *_: False)
    given_ = GrammarDriver()
    for driver in (sampled, given_):
        driver.submit(one)
        driver.drain()
        assert_as_alone(driver, one)
    decoded = [
        sum(name.startswith("decode") for name in driver.model.programs_run)
        for driver in (sampled, given_)
    ]
    forced_tokens = given_.scheduler.counters.forced_tokens
    assert decoded[0] == 18
    assert decoded[1] == 18 - forced_tokens - given_.times_forced
    assert forced_tokens >= 8
    scored = [name for name in given_.model.programs_run if name.startswith("scored")]
    assert len(scored) == given_.times_forced
    assert given_.scheduler.counters.output_tokens == 19
    assert given_.scheduler.counters.prefilled_tokens == 3


def test_they_are_told_with_the_token_that_is_sampled_behind_them() -> None:
    driver = GrammarDriver()
    driver.submit(constrained(1, prompt=3, limit=9))
    sizes: list[int] = []
    while not driver.got[1].ended:
        before = len(driver.got[1].tokens)
        driver.turn()
        if len(driver.got[1].tokens) > before:
            sizes.append(len(driver.got[1].tokens) - before)
    # One, then two that must come and one, then four and one.
    assert sizes == [1, 3, 5]


@pytest.mark.parametrize("limit", range(1, 12))
def test_the_output_limit_cuts_them(limit: int) -> None:
    driver = GrammarDriver()
    one = constrained(1, prompt=3, limit=limit)
    driver.submit(one)
    driver.drain()
    assert_as_alone(driver, one)
    assert driver.got[1].finish is Finish.LIMIT


@pytest.mark.parametrize("at", [1, 2, 4, 5])
def test_an_end_of_sequence_among_them_is_sampled(at: int) -> None:
    tokens = constrained_alone(constrained(1, prompt=3, limit=9))[0]
    one = constrained(1, prompt=3, limit=9, eos_ids=(tokens[at],))
    driver = GrammarDriver()
    driver.submit(one)
    driver.drain()
    assert_as_alone(driver, one)
    assert driver.got[1].finish is Finish.EOS


@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_the_device_looks_back_at_them(penalty: float) -> None:
    one = constrained(1, prompt=3, limit=19, repetition_penalty=penalty)
    driver = GrammarDriver()
    driver.submit(one)
    driver.drain()
    assert driver.times_forced
    assert_as_alone(driver, one)


def test_their_alternatives_come_with_them() -> None:
    driver = GrammarDriver()
    one = constrained(1, prompt=3, limit=9, top_logprobs=2)
    driver.submit(one)
    driver.drain()
    got = driver.got[1]
    assert driver.scheduler.counters.forced_tokens == 6
    assert len(got.alternatives) == 9
    assert [len(a.tokens) for a in got.alternatives] == [2] * 9
    assert got.alternatives[0] == likeliest(got.tokens[0], 2)


def test_more_of_them_than_a_program_holds_take_several_rounds() -> None:
    driver = GrammarDriver(forcing_model(scored=((2, 4),)))
    one = constrained(1, prompt=3, limit=19)
    driver.submit(one)
    driver.drain()
    assert driver.times_forced
    assert_as_alone(driver, one)


@pytest.mark.parametrize("scored", [(), ((8, 4),)])
def test_nothing_is_given_where_programs_cannot_score_or_state_is_more_than_pages(
    scored: tuple[tuple[int, int], ...],
) -> None:
    for history in (PAGES, PARTIAL_PAGES, ROWS, NOTHING):
        shape = forcing_model(scored=scored, history=history.rules).geometry
        driver = GrammarDriver(FakeModel(shape, history.kind))
        one = constrained(1, prompt=3, limit=12)
        driver.submit(one)
        driver.drain()
        assert bool(driver.times_forced) == bool(scored and history.rules.starts_at_pages)
        assert driver.got[1].finish is Finish.LIMIT
    compressed = replace(PAGES.rules, record_tokens=4)
    driver = GrammarDriver(forcing_model(history=compressed))
    driver.submit(constrained(1, prompt=3, limit=12))
    driver.drain()
    assert not driver.times_forced


def test_others_are_those_that_decode() -> None:
    driver = GrammarDriver(forces=lambda *_: False)
    until_decoding(driver, constrained(1, 3, 20), constrained(2, 3, 20), request(3, 3, 20))
    driver.submit(request(4, prompt=16, limit=3))
    assert [driver.scheduler.forcing.others(i) for i in (1, 3)] == [2, 2]
    driver.cancel(2)
    assert driver.scheduler.forcing.others(1) == 1


def test_nothing_is_given_to_whom_the_host_may_stop() -> None:
    driver = GrammarDriver()
    driver.submit(replace(constrained(1, prompt=3, limit=12), host_stops=True))
    driver.drain()
    assert not driver.times_forced


# ---------------------------------------------------------------- ends and preemption


@pytest.mark.parametrize("turns", range(1, 14))
@pytest.mark.parametrize("failure", [None, "its grammar is too large"])
def test_a_request_can_be_ended_at_any_moment(turns: int, failure: str | None) -> None:
    driver = GrammarDriver()
    one, other = constrained(1, prompt=3, limit=19), request(2, prompt=6, limit=14)
    driver.submit(one, other)
    for _ in range(turns):
        if driver.scheduler.can_plan():
            driver.launch()
        if driver.sequences and turns % 2:
            driver.complete()
    ended = driver.got[1].ended
    driver.take(driver.scheduler.cancel(1, failure))
    driver.drain()
    if not ended:
        assert driver.got[1].failure == failure
        assert driver.got[1].finish is (None if failure else Finish.CANCELLED)
        finish = Finish.FAILED if failure else Finish.CANCELLED
        assert driver.scheduler.counters.finished[finish] == 1
    assert_as_alone(driver, other)
    assert driver.scheduler.slots.free == driver.scheduler.slots.slots


@settings(deadline=None, max_examples=120)
@given(
    shapes=st.lists(
        st.tuples(
            st.integers(1, 12), st.integers(1, 14), st.integers(0, 22), st.sampled_from("cpf")
        ),
        min_size=1,
        max_size=6,
    ),
    pages=st.sampled_from([7, 10, 40]),
    frames=st.sampled_from([1, 2]),
    scored=st.sampled_from([(), ((3, 2),), ((16, 4),)]),
    mixed=st.sampled_from([(), ((16, 4),)]),
    history=st.sampled_from([PAGES, PARTIAL_PAGES]),
    cancelled=st.sets(st.integers(0, 5), max_size=2),
    data=st.data(),
)
def test_everybody_gets_what_it_gets_alone_whatever_is_given_and_preempted(
    shapes: list[tuple[int, int, int, str]],
    pages: int,
    frames: int,
    scored: tuple[tuple[int, int], ...],
    mixed: tuple[tuple[int, int], ...],
    history: History,
    cancelled: set[int],
    data: st.DataObject,
) -> None:
    """Kinds are constrained, constrained with a penalty, and free."""
    model = forcing_model(pages=pages, scored=scored, mixed=mixed, history=history.rules)
    driver = GrammarDriver(
        model,
        SchedulerOptions(frames_in_flight=frames),
        forces=lambda *_: data.draw(st.booleans()),
    )
    requests = []
    for number, (prompt, limit, eos, kind) in enumerate(shapes):
        if kind == "f":
            requests.append(request(number, prompt, limit, eos_ids=(eos,)))
            continue
        penalty = 1.2 if kind == "p" else 1.0
        requests.append(
            constrained(
                number,
                prompt,
                limit,
                eos_ids=(eos,),
                priority=data.draw(st.integers(-2, 2)),
                repetition_penalty=penalty,
            )
        )
    driver.submit(*requests)
    while not driver.scheduler.idle:
        driver.turn()
        if cancelled and data.draw(st.integers(0, 5)) == 0:
            driver.cancel(cancelled.pop() % len(requests))
    driver.drain()
    for one in requests:
        got = driver.got[one.request_id]
        if got.finish is Finish.CANCELLED:
            expected = constrained_alone(one) if one.constrained else alone(one)
            assert got.tokens == expected[0][: len(got.tokens)]
            assert got.logprobs == expected[1][: len(got.logprobs)]
        else:
            assert_as_alone(driver, one)
    assert driver.most_in_flight <= 1
    scheduler = driver.scheduler
    assert scheduler.slots.free == scheduler.slots.slots
    assert scheduler.pages.free + scheduler.cache.evictable_pages == pages


def test_a_core_without_masks_refuses_them() -> None:
    model = forcing_model()
    model.geometry = replace(model.geometry, grammars=False)
    driver = GrammarDriver(model)
    with pytest.raises(AdmissionError, match="grammar"):
        driver.submit(constrained(1))


def test_the_grammar_of_these_tests_forces_stretches() -> None:
    assert forced([4], ()) == [*allowed([4]), *allowed([4, *allowed([4])])]
    assert len(allowed([])) > 1
