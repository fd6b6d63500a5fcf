"""Where requests wait before the scheduler: no place holds more than the queue's capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from helios.scheduler import SchedulerOptions
from helios.worker.ingress import Ingress, IngressRoom
from helios.worker.messages import (
    Cancel,
    FailedEvent,
    Finish,
    FromWorker,
    RejectedEvent,
    Submit,
    Taken,
    TokensEvent,
    ToWorker,
)
from helios.worker.model_worker import ModelWorker
from tests.scheduler.driving import request
from tests.scheduler.fake_model import FakeModel, alone, geometry
from tests.worker.test_model_worker import Client, submit


def asks(request_id: int, sibling_of: int | None = None) -> Submit:
    prompt = tuple(range(3, 15))
    return submit(request(request_id, prompt, limit=4, seed=request_id, sibling_of=sibling_of))


def sibling(request_id: int, leader: int) -> Submit:
    message = asks(request_id)
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    return Submit(**fields | {"sibling_of": leader})


# ------------------------------------------------------------ the worker's side


@pytest.mark.clause("HTTP-2")
def test_the_ingress_holds_its_capacity_and_siblings_with_their_leader() -> None:
    ingress = Ingress(2)
    assert ingress.put(asks(1))
    assert ingress.put(asks(2))
    assert ingress.join(sibling(3, 1))
    assert not ingress.join(sibling(4, 9))
    assert not ingress.put(asks(5))
    assert len(ingress) == 2
    assert [one.request_id for one in ingress.pop()] == [1, 3]
    assert ingress.put(asks(6))
    assert ingress.news(sending=True) == [Taken(5), Taken(1)]
    assert [one.request_id for one in ingress.clear()] == [2, 6]
    assert ingress.news(sending=False) == [Taken(2), Taken(6)]


def test_who_is_cancelled_in_the_ingress_leaves_room_with_its_last_sibling() -> None:
    ingress = Ingress(1)
    ingress.put(asks(1))
    ingress.join(sibling(2, 1))
    assert ingress.remove(1)
    assert not ingress.remove(1)
    assert ingress.news(sending=True) == []
    assert ingress.join(sibling(3, 1))
    assert ingress.remove(2)
    assert ingress.remove(3)
    assert (len(ingress), ingress.news(sending=True)) == (0, [Taken(1)])


def test_news_wait_for_a_batch_unless_somebody_may_wait_for_them() -> None:
    ingress = Ingress(4)
    ingress.put(asks(1))
    ingress.pop()
    assert ingress.news(sending=False) == []
    ingress.put(asks(2))
    ingress.pop()
    assert ingress.news(sending=False) == [Taken(1), Taken(2)]


@pytest.mark.clause("HTTP-2", "HTTP-8")
def test_while_pages_are_short_arrivals_wait_in_queue_and_ingress() -> None:
    """One runs, two wait in the queue, two in the ingress; one more than that is refused, which
    cancels nobody."""
    most: list[tuple[int, int]] = []

    def look(messages: Sequence[FromWorker]) -> Sequence[ToWorker]:
        most.append((worker.scheduler.waiting, len(worker._requests.ingress)))
        return []

    client = Client(*(asks(i) for i in range(1, 7)), answer=look)
    model = FakeModel(geometry(slots=4, pages=4, page_tokens=4))
    worker = ModelWorker(model, client.channel, SchedulerOptions(queue_capacity=2))
    worker.run()
    assert most[0] == (2, 2)
    assert max(most) <= (2, 2)
    (rejected,) = (m for m in client.messages if isinstance(m, RejectedEvent))
    assert rejected.request_id == 6
    for i in range(1, 6):
        expected = alone(request(i, tuple(range(3, 15)), limit=4, seed=i))[0]
        assert client.tokens_of(i) == expected
    taken = [m.request_id for m in client.messages if isinstance(m, Taken)]
    assert sorted(taken) == [1, 2, 3, 4, 5, 6]
    assert worker.scheduler.idle


@pytest.mark.clause("HTTP-8")
def test_nobody_is_refused_because_somebody_was_preempted() -> None:
    """Who gave way to a more urgent request waits beside the queue, and is live all the same."""
    coming = [submit(replace(request(i, 5, limit=4), priority=-1)) for i in (2, 3, 4)]

    def then(messages: Sequence[FromWorker]) -> Sequence[ToWorker]:
        if len(client.tokens_of(1)) < 2:
            return []
        urgent, coming[:] = list(coming), []
        return urgent

    client = Client(submit(request(1, 5, limit=12)), answer=then)
    client.pending.update((2, 3, 4))
    worker = ModelWorker(
        FakeModel(geometry(slots=1)), client.channel, SchedulerOptions(queue_capacity=1)
    )
    worker.run()
    assert worker.scheduler.counters.preemptions == 1
    (rejected,) = (m.request_id for m in client.messages if isinstance(m, RejectedEvent))
    assert rejected == 4, "the ingress holds one"
    for i in (2, 3):
        assert client.tokens_of(i) == alone(request(i, 5, limit=4))[0]
    assert client.tokens_of(1) == alone(request(1, 5, limit=12))[0]


@pytest.mark.clause("HTTP-3")
def test_who_is_cancelled_in_the_ingress_never_runs() -> None:
    client = Client(*(asks(i) for i in range(1, 6)), Cancel(5), Cancel(4))
    model = FakeModel(geometry(slots=4, pages=4, page_tokens=4))
    worker = ModelWorker(model, client.channel, SchedulerOptions(queue_capacity=2))
    worker.run()
    for i in (4, 5):
        (event,) = client.events_of(i)
        assert (event.tokens, event.finish) == ([], Finish.CANCELLED)
    assert worker.scheduler.counters.submitted == 3


@pytest.mark.parametrize("fails", [False, True])
def test_the_end_reaches_the_ingress_too(fails: bool) -> None:
    client = Client(*(asks(i) for i in range(1, 6)))
    if not fails:
        client.pending.clear()  # nobody is waited for: Shutdown follows the first batch
    model = FakeModel(geometry(slots=4, pages=4, page_tokens=4))
    if fails:
        model.breaks_at = 2
    worker = ModelWorker(model, client.channel, SchedulerOptions(queue_capacity=2))
    if fails:
        with pytest.raises(Exception, match="the program broke"):
            worker.run()
    else:
        worker.run()
    for i in range(1, 6):
        last = [
            m
            for m in client.messages
            if isinstance(m, TokensEvent | FailedEvent) and m.request_id == i
        ][-1]
        if fails:
            assert isinstance(last, FailedEvent)
        else:
            assert isinstance(last, TokensEvent)
            assert last.finish in (Finish.CANCELLED, Finish.LIMIT)
    assert len(worker._requests.ingress) == 0


# ------------------------------------------------------------ the client's side


class Sent:
    def __init__(self, capacity: int) -> None:
        self.ids: list[int] = []
        self.room = IngressRoom(lambda message: self.ids.append(message.request_id))
        self.room.open(capacity)


@pytest.mark.clause("HTTP-2")
def test_the_client_sends_no_more_than_the_ingress_takes() -> None:
    sent = Sent(2)
    for i in (1, 2, 3, 4):
        sent.room.submit(asks(i))
    sent.room.submit(sibling(5, 3))
    assert sent.ids == [1, 2]
    sent.room.submit(sibling(6, 1))  # its leader is there
    assert sent.ids == [1, 2, 6]
    assert len(sent.room) == 2
    sent.room.taken(2)
    assert sent.ids == [1, 2, 6, 3, 5]
    sent.room.taken(2)  # said twice
    assert sent.ids == [1, 2, 6, 3, 5]
    sent.room.taken(1)
    assert sent.ids == [1, 2, 6, 3, 5, 4]


def test_who_is_withdrawn_is_never_sent() -> None:
    sent = Sent(1)
    for i in (1, 2, 3):
        sent.room.submit(asks(i))
    assert not sent.room.withdraw(1)
    assert sent.room.withdraw(2)
    sent.room.taken(1)
    assert sent.ids == [1, 3]


def test_nothing_is_sent_before_the_worker_is_ready() -> None:
    ids: list[int] = []
    room = IngressRoom(lambda message: ids.append(message.request_id))
    room.submit(asks(1))
    assert ids == []
    room.open(4)
    assert ids == [1]
