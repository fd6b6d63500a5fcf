"""How prompts and running outputs share the device: chunks, shares, bounds, fairness."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helios.runtime.geometry import Geometry, Operation, ProgramInfo
from helios.scheduler import SchedulerOptions
from helios.scheduler.turns import CHUNK_STEPS, PATIENCE
from tests.scheduler.driving import request
from tests.scheduler.fake_model import alone, geometry
from tests.scheduler.timed import MS, PROMPTS, TimedDriver

LONG = tuple((5 * i + 1) % 23 for i in range(2000))


def roomy(**changes: object) -> Geometry:
    """Room for everybody, and programs like those of real cores."""
    shape: dict[str, object] = {
        "slots": 16,
        "pages": 800,
        "page_tokens": 16,
        "context": 2400,
        "prefill": ((64, 8), (512, 8)),
        "decode": (1, 8, 16),
        "initialize": (1, 16),
    }
    return geometry(**(shape | changes))  # type: ignore[arg-type]


def cost_ns(program: ProgramInfo, lanes: int, tokens: int) -> int:
    """A machine that decodes eight lanes in 6 ms and prefills three tokens in a millisecond."""
    if program.operation is Operation.INITIALIZE:
        return 20_000
    return 2 * MS + MS * tokens // 3 if tokens else 4 * MS + MS * lanes // 4


STEP_MS = 6.0


def beside_eight(options: SchedulerOptions, shape: Geometry | None = None) -> TimedDriver:
    """Eight requests decode when a prompt of 2,000 tokens arrives; runs until its first token."""
    driver = TimedDriver(shape or roomy(), cost_ns, options)
    driver.submit(*(request(i, prompt=8, limit=2000) for i in range(8)))
    while min(len(driver.got[i].tokens) for i in range(8)) < 4:
        driver.turn()
    driver.came_ns.clear()
    driver.submit(request(99, prompt=LONG, limit=2))
    driver.came_ns[99].append(driver.model.clock_ns)
    while not driver.got[99].tokens:
        driver.turn()
    return driver


def worst_gap_ms(driver: TimedDriver, after: int = 0) -> float:
    return max(gap for i in range(8) for gap in driver.gaps_ms(i)[after:])


def test_a_long_prompt_stalls_nobody_without_any_option() -> None:
    driver = beside_eight(SchedulerOptions())
    whole_ms = 2 + 2000 / 3
    assert worst_gap_ms(driver) <= (1 + CHUNK_STEPS) * STEP_MS * 1.2
    assert len(driver.came_ns[0]) > 80, "tokens came all the while"
    assert driver.gaps_ms(99)[0] < 2.6 * whole_ms, "nor did the prompt have to wait for ever"


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.75, 0.9])
def test_prompts_take_their_share_of_time(share: float) -> None:
    driver = beside_eight(SchedulerOptions(prefill_share=share))
    assert driver.share_of_prompts() == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("bound", [12.0, 20.0, 50.0, 120.0])
def test_the_time_between_tokens_stays_within_the_bound(bound: float) -> None:
    driver = beside_eight(SchedulerOptions(max_step_ms=bound, prefill_share=0.9))
    # What chunks of this size cost is learned from the first of them.
    assert worst_gap_ms(driver, after=4) <= bound * 1.05
    assert worst_gap_ms(driver) <= bound * 1.5
    used = sorted(driver.gaps_ms(0))
    assert used[len(used) // 2] > bound * 0.7, "most of it is used"


def test_a_wider_bound_admits_prompts_sooner() -> None:
    waits = [
        beside_eight(SchedulerOptions(max_step_ms=bound, prefill_share=0.9)).gaps_ms(99)[0]
        for bound in (12.0, 20.0, 50.0, 120.0)
    ]
    assert waits == sorted(waits, reverse=True)
    assert waits[-1] < waits[0] / 1.5


@pytest.mark.parametrize("bound", [0.001, 6.0, 7.0])
def test_a_bound_that_cant_be_kept_stretches_steps_no_more_than_it_must(bound: float) -> None:
    driver = beside_eight(SchedulerOptions(max_step_ms=bound))
    page_ms = 2 + 16 / 3
    assert worst_gap_ms(driver) <= STEP_MS + page_ms + 0.5
    assert driver.share_of_prompts() == pytest.approx(0.5, abs=0.05)


def test_the_bound_holds_where_running_requests_take_turns() -> None:
    shape = roomy(decode=(1, 2, 4))
    driver = beside_eight(SchedulerOptions(max_step_ms=40.0, prefill_share=0.9), shape)
    assert worst_gap_ms(driver) <= 40.0 * 1.05


def test_nothing_is_cut_where_nobody_decodes() -> None:
    driver = TimedDriver(roomy(), cost_ns, SchedulerOptions(max_step_ms=1.0))
    driver.submit(request(1, prompt=LONG, limit=1))
    assert driver.drain()[1:] == ["prefill.p512"] * 4


def test_short_prompts_one_after_the_other_keep_to_the_share_too() -> None:
    driver = TimedDriver(roomy(), cost_ns)
    driver.submit(*(request(i, prompt=8, limit=2000) for i in range(8)))
    while min(len(driver.got[i].tokens) for i in range(8)) < 4:
        driver.turn()
    began_ns, before = driver.model.clock_ns, len(driver.came_ns[0])
    for number in range(100, 160):
        driver.submit(request(number, prompt=60, limit=1))
        while not driver.got[number].ended:
            driver.turn()
    decoded_ns = (len(driver.came_ns[0]) - before) * STEP_MS * MS
    assert decoded_ns / (driver.model.clock_ns - began_ns) == pytest.approx(0.5, abs=0.07)


def test_a_claim_that_couldnt_be_used_doesnt_grow() -> None:
    # The prompt waits long for pages, which a request behind it doesn't give up.
    shape = roomy(pages=40, context=700, slots=4)
    driver = TimedDriver(shape, cost_ns)
    driver.submit(request(1, prompt=16, limit=220), request(2, prompt=16, limit=400))
    while len(driver.got[2].tokens) < 4:
        driver.turn()
    driver.submit(request(3, prompt=(3,) * 300, limit=1))
    driver.drain()
    in_a_row = longest_run([c.program.operation in PROMPTS for c in driver.contended], kind=True)
    assert in_a_row <= 3


def longest_run(rounds: list[bool], *, kind: bool) -> int:
    """The most rounds of one kind in a row."""
    longest = run = 0
    for one in rounds:
        run = run + 1 if one is kind else 0
        longest = max(longest, run)
    return longest


@given(
    costs=st.dictionaries(
        st.sampled_from(["prefill.p4", "prefill.p16", "decode.b1", "decode.b4", "mixed.p8"]),
        st.tuples(st.integers(0, 10**9), st.integers(0, 10**8)),
    ),
    noise=st.lists(st.integers(1, 50), min_size=1, max_size=7),
    share=st.floats(0.05, 0.95),
    bound=st.one_of(st.none(), st.floats(0.001, 1000.0)),
    mixed=st.booleans(),
)
@example(  # a program is first used when prompts have waited long enough
    costs={"decode.b4": (18358, 16650)},
    noise=[47, 24, 1, 46, 16, 1, 1],
    share=0.32435444761276705,
    bound=57.0,
    mixed=False,
)
@settings(deadline=None, max_examples=80)
def test_neither_prompts_nor_running_outputs_starve(
    costs: dict[str, tuple[int, int]],
    noise: list[int],
    share: float,
    bound: float | None,
    mixed: bool,
) -> None:
    rolled = 0

    def any_cost(program: ProgramInfo, lanes: int, tokens: int) -> int:
        nonlocal rolled
        rolled += 1
        fixed, each = costs.get(program.name, (MS, MS))
        return (fixed + each * max(lanes, tokens)) * noise[rolled % len(noise)]

    shape = geometry(
        slots=6, pages=200, context=240, decode=(1, 4), mixed=((8, 5),) if mixed else ()
    )
    driver = TimedDriver(shape, any_cost, SchedulerOptions(prefill_share=share, max_step_ms=bound))
    requests = [request(i, prompt=8, limit=90) for i in range(3)]
    requests += [request(i, prompt=110, limit=1) for i in range(3, 6)]
    driver.submit(*requests)
    driver.drain()
    rounds = [c.program.operation for c in driver.contended]
    outputs = [one is not Operation.DECODE for one in rounds]
    prompts = [one not in PROMPTS for one in rounds]
    assert longest_run(outputs, kind=False) <= PATIENCE
    assert longest_run(prompts, kind=False) <= PATIENCE
    for one in requests:
        assert driver.got[one.request_id].tokens == alone(one)[0]
