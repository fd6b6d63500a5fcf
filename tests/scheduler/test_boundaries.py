"""Boundaries of a prompt: where models that keep state rows save it for other conversations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.scheduler import Request
from tests.scheduler.driving import Driver, request
from tests.scheduler.histories import (
    HISTORIES,
    PAGES,
    PARTIAL_PAGES,
    ROWS,
    WINDOW,
    WINDOW_AND_ROWS,
    WINDOW_OF_PAGES,
    History,
    assert_as_alone,
    driver_of,
    prefilled,
)

PROMPT = tuple((5 * i + 2) % 23 for i in range(14))
OTHER = (22, 21, 20)  # how a conversation goes on otherwise


def serve(driver: Driver, one: Request) -> tuple[int, int, list[str]]:
    """(tokens reused, prompt tokens computed, programs run) of a request alone."""
    before = prefilled(driver)
    driver.submit(one)
    programs = driver.drain()
    assert_as_alone(driver, one)
    return driver.got[one.request_id].reused, prefilled(driver) - before, programs


@pytest.mark.clause("FRONT-8")
@pytest.mark.parametrize("history", [ROWS, WINDOW_AND_ROWS], ids=str)
@pytest.mark.parametrize("boundary", [4, 6, 9])
def test_a_conversation_that_parts_at_a_boundary_reuses_what_is_before(
    history: History, boundary: int
) -> None:
    """Without the boundary nothing can be reused: a state is saved at exact endpoints."""
    other = (*PROMPT[:boundary], *OTHER)
    for boundaries, expected in (((), 0), ((boundary,), boundary)):
        driver = driver_of(history, pages=30)
        serve(driver, request(0, PROMPT, 3, boundaries=boundaries))
        reused, computed, programs = serve(driver, request(1, other, 3))
        assert (reused, computed) == (expected, len(other) - expected)
        assert programs[0] == ("restore.b1" if expected else "initialize.b1")


def test_a_prompt_stops_at_its_boundary_and_before_its_last_token() -> None:
    driver = driver_of(ROWS, pages=30)
    assert serve(driver, request(0, PROMPT, 2, boundaries=(6,)))[2] == [
        "initialize.b1",
        "prefill.p16",
        "snapshot.b1",
        "prefill.p16",
        "snapshot.b1",
        "prefill.p4",
        "decode.b1",
        "snapshot.b1",
    ]
    assert serve(driver, request(1, PROMPT, 2))[0] == 13


def test_no_stop_is_less_than_a_page_behind_another() -> None:
    """Pages are of 4 tokens: the boundary at 3 isn't worth a round, nor is 13 behind 11."""
    driver = driver_of(ROWS, pages=30)
    driver.submit(request(0, PROMPT, 1, boundaries=(3, 11)))
    assert driver.drain().count("snapshot.b1") == 2  # at 11, and where the request ends
    assert serve(driver, request(1, (*PROMPT[:11], *OTHER), 1))[0] == 11
    assert serve(driver, request(2, (*PROMPT[:3], *OTHER), 1))[0] == 0


def test_the_first_and_the_last_boundary_are_enough() -> None:
    prompt = tuple((5 * i + 2) % 23 for i in range(30))
    for parts_at, reused in ((5, 5), (10, 5), (15, 5), (20, 20)):
        driver = driver_of(ROWS, pages=60)
        serve(driver, request(0, prompt, 1, boundaries=(5, 10, 15, 20)))
        assert serve(driver, request(1, (*prompt[:parts_at], *OTHER), 1))[0] == reused


def test_what_is_reused_has_no_boundaries_to_stop_at() -> None:
    """The next turn of a conversation stops at what is new in it."""
    prompt = tuple((5 * i + 2) % 23 for i in range(30))
    driver = driver_of(ROWS, pages=60)
    serve(driver, request(0, prompt[:14], 1, boundaries=(5,)))
    reused, _, programs = serve(driver, request(1, prompt, 1, boundaries=(5, 20)))
    assert reused >= 13
    assert programs.count("snapshot.b1") == 3
    assert serve(driver, request(2, (*prompt[:20], *OTHER), 1))[0] == 20


def test_without_a_row_the_prompt_goes_on() -> None:
    driver = driver_of(ROWS, pages=30, rows=0)
    one = request(0, PROMPT, 2, boundaries=(6,))
    driver.submit(one)
    assert "snapshot.b1" not in driver.drain()
    assert_as_alone(driver, one)


@pytest.mark.parametrize("history", [PAGES, PARTIAL_PAGES, WINDOW, WINDOW_OF_PAGES], ids=str)
def test_where_pages_begin_requests_boundaries_change_no_round(history: History) -> None:
    programs = []
    for boundaries in ((), (4, 6, 9)):
        driver = driver_of(history, pages=30)
        programs.append(serve(driver, request(0, PROMPT, 5, boundaries=boundaries))[2])
    assert programs[0] == programs[1]


@given(
    st.sampled_from(HISTORIES),
    st.lists(
        st.tuples(st.integers(2, 30), st.sets(st.integers(1, 29)), st.integers(1, 5)),
        min_size=1,
        max_size=6,
    ),
)
def test_boundaries_change_no_token(
    history: History, asked: list[tuple[int, set[int], int]]
) -> None:
    """Beside each other, short of pages, of one prompt's beginnings; the books are checked after
    every act."""
    prompt = tuple((5 * i + 2) % 23 for i in range(30))
    driver = driver_of(history, pages=20)
    every = [
        request(n, prompt[:length], limit, boundaries=tuple(sorted(b for b in cuts if b < length)))
        for n, (length, cuts, limit) in enumerate(asked)
    ]
    driver.submit(*every)
    driver.drain()
    assert_as_alone(driver, *every)
