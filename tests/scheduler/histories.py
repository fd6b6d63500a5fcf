"""The kinds of model that caching is tested with: what they can reuse, and a driver over each."""

from __future__ import annotations

from dataclasses import dataclass

from helios.runtime.geometry import HistoryRules
from helios.scheduler import Request, SchedulerOptions
from tests.scheduler.driving import Driver
from tests.scheduler.fake_geometry import geometry
from tests.scheduler.fake_memory import PAGED, Kind
from tests.scheduler.fake_model import FakeModel, alone
from tests.scheduler.fake_tier import FakeTier


@dataclass(frozen=True)
class History:
    """A kind of model with the rules that its contract would say."""

    name: str
    rules: HistoryRules
    kind: Kind = PAGED

    def __str__(self) -> str:
        return self.name


PAGES = History("pages", HistoryRules(starts_at_pages=True))
PARTIAL_PAGES = History(
    "partial pages", HistoryRules(starts_at_pages=True, restores=True, names_endpoint=True)
)
WINDOW = History(
    "window",
    HistoryRules(starts_at_pages=True, restores=True, names_endpoint=True, window_tokens=6),
    Kind(window=6),
)
WINDOW_OF_PAGES = History(
    "window of pages", HistoryRules(starts_at_pages=True, window_tokens=9), Kind(window=9)
)
ROWS = History("rows", HistoryRules(restores=True), Kind(rows=True))
WINDOW_AND_ROWS = History(
    "window and rows", HistoryRules(restores=True, window_tokens=6), Kind(window=6, rows=True)
)
NOTHING = History("nothing", HistoryRules())
REUSING = (PAGES, PARTIAL_PAGES, WINDOW, WINDOW_OF_PAGES, ROWS, WINDOW_AND_ROWS)
HISTORIES = (*REUSING, NOTHING)


def driver_of(
    history: History,
    options: SchedulerOptions | None = None,
    *,
    tier_delay: int | None = None,
    **capacities: object,
) -> Driver:
    """A driver over a model of that kind; capacities as for `geometry`. With a `tier_delay` there
    is a second tier."""
    shape = geometry(history=history.rules, **capacities)  # type: ignore[arg-type]
    model = FakeModel(shape, history.kind)
    tier = None if tier_delay is None else FakeTier(shape, model.memory, tier_delay)
    return Driver(model, options, tier)


def assert_as_alone(driver: Driver, *requests: Request) -> None:
    """Each request got what it gets alone."""
    for one in requests:
        got = driver.got[one.request_id]
        tokens, logprobs, finish = alone(one, driver.model.memory.kind)
        assert (got.tokens, got.logprobs, got.finish) == (tokens, logprobs, finish)


def prefilled(driver: Driver) -> int:
    """Prompt tokens that were computed so far."""
    return driver.scheduler.counters.prefilled_tokens
