"""The worker's loop around the prefix cache: what it tells of reuse, how it waits for a second
tier, and what becomes of books that don't agree."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from helios.scheduler import SchedulerOptions
from helios.worker.messages import (
    BooksBroken,
    FromWorker,
    PrefixCacheReset,
    ReadStatistics,
    ResetPrefixCache,
    Shutdown,
    Statistics,
    TokensEvent,
    ToWorker,
)
from helios.worker.model_worker import ModelWorker
from tests.scheduler.driving import request
from tests.scheduler.fake_model import FakeModel, alone, geometry
from tests.scheduler.fake_tier import FakeTier
from tests.scheduler.histories import PAGES, PARTIAL_PAGES
from tests.worker.test_model_worker import Client, submit

PROMPT = tuple((5 * i + 2) % 23 for i in range(14))


def after(request_id: int, *messages: ToWorker) -> object:
    """Posts messages at the end of a request."""

    def answer(batch: Sequence[FromWorker]) -> Sequence[ToWorker]:
        ended = any(
            isinstance(m, TokensEvent) and m.request_id == request_id and m.finish for m in batch
        )
        return messages if ended else ()

    return answer


def one_after_the_other(*requests: ToWorker) -> Client:
    """A client whose second message follows the end of the first one's request."""
    first, *others = requests
    client = Client(first)
    client.pending.update(getattr(m, "request_id", -1) for m in others)
    client.pending.discard(-1)
    client.answer = after(first.request_id, *others)  # type: ignore[assignment, union-attr]
    return client


def test_events_say_how_much_of_the_prompt_was_reused() -> None:
    client = one_after_the_other(
        submit(request(1, PROMPT, 4)), submit(request(2, PROMPT, 4)), ReadStatistics()
    )
    model = FakeModel(geometry(history=PARTIAL_PAGES.rules, pages=30))
    ModelWorker(model, client.channel).run()
    assert {event.reused_prompt_tokens for event in client.events_of(1)} == {0}
    assert {event.reused_prompt_tokens for event in client.events_of(2)} == {13}
    assert client.tokens_of(2) == alone(request(2, PROMPT, 4))[0]


def test_statistics_tell_of_the_cache() -> None:
    model = FakeModel(geometry(history=PARTIAL_PAGES.rules, pages=30))
    told: list[Statistics] = []

    def ask(batch: Sequence[FromWorker]) -> Sequence[ToWorker]:
        told.extend(m for m in batch if isinstance(m, Statistics))
        if any(isinstance(m, TokensEvent) and m.request_id == 2 and m.finish for m in batch):
            return [ReadStatistics(), Shutdown()]
        first = any(isinstance(m, TokensEvent) and m.request_id == 1 and m.finish for m in batch)
        return [submit(request(2, PROMPT, 4))] if first else []

    client = Client(submit(request(1, PROMPT, 4)), answer=ask)
    client.pending.add(2)
    ModelWorker(model, client.channel).run()
    (statistics,) = told
    counters, gauges = statistics.counters, statistics.gauges
    assert counters["prefix_hits"] == 1
    assert counters["prefix_reused_tokens"] == 13
    assert counters["pages_published"] >= 4
    assert counters["snapshots_published"] >= 1
    assert counters["integrity_violations"] == 0
    assert gauges["pages_used"] + gauges["pages_cached"] + gauges["pages_free"] == 30
    assert gauges["pages_cached"] > 0


def test_it_waits_for_a_second_tier_without_anything_in_flight() -> None:
    model = FakeModel(geometry(history=PAGES.rules, pages=30))
    tier = FakeTier(model.geometry, model.memory, delay=3)
    client = one_after_the_other(submit(request(1, PROMPT, 4)), submit(request(2, PROMPT, 4)))
    worker = ModelWorker(model, client.channel, tier=tier)
    answer = client.answer
    assert answer is not None

    def forgetting(batch: Sequence[FromWorker]) -> Sequence[ToWorker]:
        messages = answer(batch)
        if messages:
            worker.scheduler.cache.clear()
        return messages

    client.answer = forgetting
    worker.run()
    (event, *_) = client.events_of(2)
    assert event.reused_prompt_tokens == 12
    assert tier.written == 3


def test_a_reset_is_answered_when_nothing_can_be_reused_any_more() -> None:
    model = FakeModel(geometry(history=PAGES.rules, pages=30))
    tier = FakeTier(model.geometry, model.memory)
    told: list[FromWorker] = []

    def answer(batch: Sequence[FromWorker]) -> Sequence[ToWorker]:
        told.extend(m for m in batch if isinstance(m, PrefixCacheReset | Statistics))
        ended = {m.request_id for m in batch if isinstance(m, TokensEvent) and m.finish}
        if 1 in ended:
            return [ReadStatistics(), ResetPrefixCache()]
        if any(isinstance(m, PrefixCacheReset) for m in batch):
            return [submit(request(2, PROMPT, 4))]
        return [ReadStatistics()] if 2 in ended else []

    client = Client(submit(request(1, PROMPT, 4)), answer=answer)
    client.pending.add(2)
    ModelWorker(model, client.channel, tier=tier).run()
    before, reset, after_it = told
    assert isinstance(before, Statistics)
    assert before.tiers["fake"].entries >= 3
    assert before.gauges["pages_cached"] >= 3
    assert isinstance(reset, PrefixCacheReset)
    assert {event.reused_prompt_tokens for event in client.events_of(2)} == {0}
    assert isinstance(after_it, Statistics)
    assert after_it.counters["prefix_queries"] == 2
    assert after_it.counters["prefix_hits"] == 0
    assert after_it.counters["prefix_queried_tokens"] == 2 * 13


def test_broken_books_are_told_logged_and_counted_and_the_worker_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = FakeModel(geometry(pages=30))
    broken: list[BooksBroken] = []
    told: list[Statistics] = []

    def answer(batch: Sequence[FromWorker]) -> Sequence[ToWorker]:
        ended = {m.request_id for m in batch if isinstance(m, TokensEvent) and m.finish}
        told.extend(m for m in batch if isinstance(m, Statistics))
        if 1 in ended:
            worker.scheduler.pages._free.pop()
        if any(isinstance(m, BooksBroken) for m in batch):
            broken.extend(m for m in batch if isinstance(m, BooksBroken))
            return [submit(request(2, limit=3))]
        return [ReadStatistics()] if 2 in ended else []

    client = Client(submit(request(1, limit=3)), answer=answer)
    client.pending.add(2)
    worker = ModelWorker(model, client.channel, SchedulerOptions())
    with caplog.at_level(logging.ERROR, logger="helios"):
        worker.run()
    (message,) = broken
    assert "page books don't balance" in message.message
    assert client.tokens_of(2) == alone(request(2, limit=3))[0]
    (record,) = (r for r in caplog.records if r.levelno == logging.ERROR)
    assert "pages: 30, free 29" in record.getMessage()
    (statistics,) = told
    assert statistics.counters["integrity_violations"] >= 1


def test_books_are_looked_at_after_work_and_not_again() -> None:
    client = Client(submit(request(1, limit=3)))
    worker = ModelWorker(FakeModel(geometry()), client.channel)
    looks: list[int] = []
    inspect = worker.scheduler.inspect

    def counting() -> object:
        looks.append(1)
        return inspect()

    worker.scheduler.inspect = counting  # type: ignore[method-assign, assignment]
    worker.run()
    assert len(looks) == 1
