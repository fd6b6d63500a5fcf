"""The books: every kind of disagreement is found, named, and dumped without anybody's tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helios.scheduler import Scheduler
from helios.scheduler.integrity import IntegrityError
from helios.scheduler.requests import Phase, Resident
from tests.scheduler.driving import Driver, request
from tests.scheduler.histories import PARTIAL_PAGES, driver_of


def running() -> tuple[Driver, Resident]:
    """A driver with one request that decodes, one that waits, and something published."""
    driver = driver_of(PARTIAL_PAGES, slots=1, pages=30)
    driver.submit(request(1, prompt=9, limit=20), request(2, prompt=6))
    while len(driver.got[1].tokens) < 5:
        driver.turn()
    driver.launch()
    (resident,) = driver.scheduler._residency.residents
    assert resident.hold.depth == 2
    return driver, resident


def set_to(name: str, value: object) -> Callable[[Scheduler, Resident], None]:
    return lambda scheduler, resident: setattr(resident, name, value)


DAMAGE: dict[str, tuple[Callable[[Scheduler, Resident], object], str]] = {
    "lost page": (lambda s, r: s.pages._free.pop(), "page books don't balance"),
    "page twice": (lambda s, r: s.pages._free.append(r.pages[0]), "page books don't balance"),
    "lost row": (lambda s, r: s.cache.rows._free.pop(), "row books don't balance"),
    "lost slot": (lambda s, r: s.slots.give_back(0), "slot books don't balance"),
    "pin": (lambda s, r: setattr(r.hold.path[0], "pins", 3), "counts 3 pins"),
    "tree": (lambda s, r: r.hold.path[0].children.clear(), "on nodes that were removed"),
    "hold": (lambda s, r: s.cache.release(r.hold), "its hold was released"),
    "covered": (set_to("covered", 99), "it covers what it has no pages for"),
    "endpoints": (set_to("planned_consumed", 1), "endpoints are out of order"),
    "private": (lambda s, r: r.private.clear(), "neither its own nor held"),
    "exchanged": (lambda s, r: r.private.update({2: 29}), "aren't those of its list"),
    "due": (set_to("due_row", 1), "its snapshot is half due"),
    "fences": (set_to("rounds_in_flight", 5), "counts 5 rounds in flight of 2"),
    "stranger": (lambda s, r: s._residency.residents.clear(), "of nobody who is resident"),
    "awaiting": (set_to("phase", Phase.ADMITTED), "0 of 1 residents await their state"),
    "request": (lambda s, r: s._residency.waiting._queue.clear(), "1 requests wait or go on, 2"),
    "rank": (
        lambda s, r: s._residency.waiting._queue.append(r.progress),
        "the order of rank is broken among waiting",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found(kind: str) -> None:
    driver, resident = running()
    assert driver.scheduler.inspect().holds
    assert driver.scheduler.inspect().dump == ""
    damage, says = DAMAGE[kind]
    damage(driver.scheduler, resident)
    report = driver.scheduler.inspect()
    assert not report.holds
    assert any(says in violation for violation in report.violations), report.violations
    with pytest.raises(IntegrityError, match="books don't agree") as raised:
        driver.scheduler.check_books()
    assert raised.value.report == report


def test_a_request_that_ended_and_wasnt_given_back_is_found() -> None:
    driver, resident = running()
    driver.complete()
    driver.complete()
    resident.phase = Phase.ENDING
    assert any(
        "it has ended and wasn't given back" in violation
        for violation in driver.scheduler.inspect().violations
    )


def test_a_dump_says_who_holds_what_and_no_tokens() -> None:
    driver = driver_of(PARTIAL_PAGES, slots=1, pages=30)
    secret = (22, 21, 22, 21, 22, 21, 22, 21, 22)
    driver.submit(request(77, secret, limit=20), request(88, secret))
    while not driver.got[77].tokens:
        driver.turn()
    driver.launch()
    driver.scheduler.slots.give_back(0)
    dump = driver.scheduler.inspect().dump
    assert "request 77" in dump
    assert "waiting: [88]" in dump
    assert "DECODING" in dump
    assert "round in flight: slots [0]" in dump
    assert "22, 21" not in dump
