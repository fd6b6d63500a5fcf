"""What a request finds in the cache when it is admitted: how much, and by which operation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helios.runtime.geometry import HistoryRules
from helios.scheduler import Request, SchedulerOptions
from tests.scheduler.driving import Driver, request
from tests.scheduler.histories import (
    HISTORIES,
    NOTHING,
    PAGES,
    PARTIAL_PAGES,
    REUSING,
    ROWS,
    WINDOW_AND_ROWS,
    History,
    assert_as_alone,
    driver_of,
    prefilled,
)

PROMPT = tuple((5 * i + 2) % 23 for i in range(14))


def serve(driver: Driver, one: Request) -> tuple[int, int, list[str]]:
    """(tokens reused, prompt tokens computed, programs run) of a request alone."""
    before = prefilled(driver)
    driver.submit(one)
    programs = driver.drain()
    assert_as_alone(driver, one)
    return driver.got[one.request_id].reused, prefilled(driver) - before, programs


def after_first(history: History, **capacities: int) -> Driver:
    """A driver whose cache has the prompt of 14 tokens and its answer of 6, in pages of 4."""
    driver = driver_of(history, pages=30, **capacities)
    reused, computed, _ = serve(driver, request(0, PROMPT, 6))
    assert (reused, computed) == (0, 14)
    return driver


@pytest.mark.clause("CACHE-4")
@pytest.mark.parametrize("history", REUSING, ids=str)
def test_what_is_reused_is_not_computed_again(history: History) -> None:
    driver = after_first(history)
    again, computed, _ = serve(driver, request(1, PROMPT, 6, seed=9))
    assert again >= 12
    assert again + computed + (again == 13) == 14, "all but the last token, which is decoded"
    longer = PROMPT + tuple(driver.got[0].tokens) + (1, 2, 3)
    reused, computed, _ = serve(driver, request(2, longer, 3))
    assert reused >= 16
    assert reused + computed == len(longer)


def test_a_model_that_can_begin_nowhere_reuses_nothing() -> None:
    driver = after_first(NOTHING)
    assert serve(driver, request(1, PROMPT, 6))[:2] == (0, 14)
    assert driver.scheduler.cache.counters.published_pages == 0


@pytest.mark.clause("CACHE-7")
@pytest.mark.parametrize("length", range(1, 15))
def test_pages_and_part_of_one_serve_every_beginning_of_a_prompt(length: int) -> None:
    """In the page that a snapshot is of, any of its tokens may be the last one reused; elsewhere
    only pages' ends; never the prompt's own last token."""
    driver = after_first(PARTIAL_PAGES)
    reused, computed, programs = serve(driver, request(1, PROMPT[:length], 3))
    last = length - 1
    assert reused == (last if last >= 12 else last - last % 4)
    if reused and reused == last:
        assert programs[0] == "resume.b1"
        assert computed == 0
    else:
        assert programs[0] == "initialize.b1"


@pytest.mark.parametrize("length", range(1, 15))
def test_pages_alone_serve_whole_pages(length: int) -> None:
    driver = after_first(PAGES)
    reused, computed, programs = serve(driver, request(1, PROMPT[:length], 3))
    assert reused == (length - 1) // 4 * 4
    assert computed == length - reused
    assert programs[0] == "initialize.b1"


@pytest.mark.clause("CACHE-7")
@pytest.mark.parametrize("history", [ROWS, WINDOW_AND_ROWS], ids=str)
def test_state_rows_serve_exactly_the_endpoints_that_were_saved(history: History) -> None:
    """The prompt but for its last token, and all that was consumed at the end."""
    driver = after_first(history)
    consumed = PROMPT + tuple(driver.got[0].tokens[:-1])
    assert len(consumed) == 19
    for number, (prompt, expected) in enumerate(
        [
            (PROMPT, 13),
            (PROMPT[:13], 0),
            ((*PROMPT[:13], 1, 1), 13),
            ((*consumed, 4, 4), 19),
            (consumed, 13),
        ],
        start=1,
    ):
        driver_now = after_first(history)
        reused, _, programs = serve(driver_now, request(number, prompt, 3))
        assert reused == expected
        resumes = expected == len(prompt) - 1
        first = "initialize" if not expected else "resume" if resumes else "restore"
        assert programs[0] == f"{first}.b1"


def test_state_rows_are_saved_before_the_last_token_of_a_prompt() -> None:
    driver = driver_of(ROWS)
    driver.submit(request(0, PROMPT, 2))
    assert driver.drain() == [
        "initialize.b1",
        "prefill.p16",
        "snapshot.b1",
        "prefill.p4",
        "decode.b1",
        "snapshot.b1",
    ]


def test_a_prompt_of_less_than_a_page_is_not_split_for_a_snapshot() -> None:
    driver = driver_of(ROWS)
    driver.submit(request(0, PROMPT[:4], 2))
    assert driver.drain() == ["initialize.b1", "prefill.p4", "decode.b1", "snapshot.b1"]


def test_snapshots_are_taken_only_within_pages_where_pages_are_enough() -> None:
    driver = driver_of(PARTIAL_PAGES)
    driver.submit(request(0, PROMPT[:9], 4))  # ends at 12 consumed tokens; 8 are before the last
    assert driver.drain() == ["initialize.b1", "prefill.p16", *["decode.b1"] * 3]
    assert serve(driver, request(1, PROMPT[:9], 2))[0] == 8


def test_a_longer_snapshot_takes_the_place_of_a_shorter_one() -> None:
    driver = driver_of(PARTIAL_PAGES, pages=30)
    serve(driver, request(0, PROMPT[:10], 1))  # tokens 8 and 9 of the third page
    assert driver.scheduler.cache.rows.free == 7
    assert serve(driver, request(1, PROMPT[:11], 1))[0] == 10
    assert driver.scheduler.cache.rows.free == 7
    assert serve(driver, request(2, PROMPT[:12], 1))[0] == 11
    assert serve(driver, request(3, PROMPT[:10], 1))[2][0] == "resume.b1"


def test_requests_share_pages_while_they_run() -> None:
    driver = after_first(PAGES)
    requests = [request(i, (*PROMPT[:13], i), 8) for i in (1, 2, 3)]
    driver.submit(*requests)
    driver.turn()
    used = driver.scheduler.pages.pages - driver.scheduler.pages.free
    evictable = driver.scheduler.cache.evictable_pages
    assert used - evictable <= 3 + 3, "three shared pages, and one of their own each"
    driver.drain()
    assert_as_alone(driver, *requests)
    assert all(driver.got[i].reused == 12 for i in (1, 2, 3))


def test_different_operations_go_in_rounds_of_their_own_and_equal_ones_together() -> None:
    driver = after_first(PARTIAL_PAGES)
    new = [request(i, 5 + i, 2) for i in (11, 12)]
    known = [request(i, PROMPT, 2) for i in (21, 22)]
    driver.submit(new[0], known[0], new[1], known[1])
    launched = [driver.launch(), driver.launch()]
    assert launched == ["initialize.b4", "resume.b4"]
    driver.drain()
    assert_as_alone(driver, *new, *known)


@pytest.mark.parametrize("history", HISTORIES, ids=str)
def test_reuse_can_be_switched_off_for_all(history: History) -> None:
    driver = driver_of(history, SchedulerOptions(prefix_reuse=False), pages=30)
    for number in (0, 1):
        reused, computed, programs = serve(driver, request(number, PROMPT, 6))
        assert (reused, computed) == (0, 14)
        assert not any(name.startswith(("snapshot", "restore", "resume")) for name in programs)
    assert driver.scheduler.pages.free == 30


def test_a_request_can_neither_use_nor_leave_anything() -> None:
    driver = driver_of(PARTIAL_PAGES, pages=30)
    serve(driver, request(0, PROMPT, 6, prefix_reuse=False))
    assert driver.scheduler.pages.free == 30
    serve(driver, request(1, PROMPT, 6))
    assert serve(driver, request(2, PROMPT, 6, prefix_reuse=False))[:2] == (0, 14)
    assert serve(driver, request(3, PROMPT, 6))[0] == 13


def test_prompts_that_want_scores_are_computed() -> None:
    rules = replace(PAGES.rules)
    driver = driver_of(History("scored", rules), scored=((16, 2),), pages=30)
    serve(driver, request(0, PROMPT, 6))
    one = replace(request(1, PROMPT, 6), score_prompt=True)
    assert serve(driver, one)[:2] == (0, 14)
    assert serve(driver, request(2, PROMPT, 6))[0] == 12


def test_every_event_says_what_was_reused() -> None:
    driver = after_first(PAGES)
    driver.submit(request(1, PROMPT, 9))
    while not driver.got[1].tokens:
        driver.turn()
    assert driver.got[1].reused == 12
    driver.cancel(1)
    assert driver.got[1].reused == 12
    driver.drain()


def test_a_reset_forgets_everything_but_what_runs() -> None:
    driver = after_first(PARTIAL_PAGES)
    running = request(1, (*PROMPT, 3), 9)
    driver.submit(running)
    driver.turn()
    driver.scheduler.reset_cache()
    driver.check()
    assert serve(driver, request(2, PROMPT, 2))[0] == 0
    driver.drain()
    assert_as_alone(driver, running)
    assert serve(driver, request(3, PROMPT, 2))[0] == 13, "what was published after the reset"


def test_who_was_admitted_before_a_reset_begins_with_what_it_holds() -> None:
    """Its first round goes only after the reset: the other request needed another operation."""
    driver = after_first(PARTIAL_PAGES)
    other, held = request(1, (22,)), request(2, (*PROMPT, 3, 4, 5), 9)
    driver.submit(other, held)
    assert driver.launch() is not None
    assert [r.progress.request for r in driver.in_flight[0].residents] == [other]
    driver.scheduler.reset_cache()
    driver.check()
    driver.drain()
    assert_as_alone(driver, other, held)
    assert driver.got[2].reused == 13
    assert serve(driver, request(3, PROMPT, 2))[0] == 0, "what it held is found by nobody"


@pytest.mark.clause("CACHE-4")
@pytest.mark.parametrize("history", REUSING, ids=str)
def test_cached_pages_make_way_for_a_request_that_needs_them(history: History) -> None:
    driver = driver_of(history, pages=6, rows=2)
    for number in range(4):
        one = request(number, tuple((number + i) % 23 for i in range(14)), 8)
        serve(driver, one)
    assert driver.scheduler.counters.preemptions == 0
    assert driver.scheduler.cache.counters.evicted_pages > 0


@pytest.mark.clause("CACHE-4")
def test_the_pages_that_a_request_would_share_are_not_evicted_for_its_own() -> None:
    driver = driver_of(PAGES, pages=6)
    serve(driver, request(0, PROMPT, 2))
    reused, _, _ = serve(driver, request(1, PROMPT, 8))
    assert reused == 12
    assert driver.scheduler.cache.counters.evicted_pages == 0


def test_a_snapshot_is_kept_until_it_has_been_copied() -> None:
    driver = driver_of(PARTIAL_PAGES, pages=30, rows=1)
    serve(driver, request(0, PROMPT[:7], 4))  # 10 consumed tokens are in the one row
    known = (*PROMPT[:7], *driver.got[0].tokens[:3])
    driver.submit(request(1, (*known, 1, 2, 3), 2))
    assert driver.launch() == "restore.b1"
    assert not driver.scheduler.cache.can_take_row()
    driver.complete()
    assert driver.scheduler.cache.can_take_row()
    driver.drain()
    assert driver.got[1].reused == 10


def test_the_match_is_not_repeated_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = driver_of(PAGES, slots=1, pages=30)
    driver.submit(request(0, PROMPT, 20), request(1, PROMPT, 2))
    calls: list[int] = []
    match = driver.scheduler.cache.match
    monkeypatch.setattr(
        driver.scheduler.cache, "match", lambda *given: calls.append(1) or match(*given)
    )
    driver.drain()
    assert len(calls) <= 4


def test_rules_without_programs_change_nothing() -> None:
    """A model that could restore but has no room for snapshots begins at pages."""
    rules = HistoryRules(starts_at_pages=True, restores=True, names_endpoint=True)
    driver = driver_of(History("no rows", rules), rows=0, pages=30)
    serve(driver, request(0, PROMPT, 6))
    assert serve(driver, request(1, PROMPT, 6))[0] == 12
