"""The worker's loop over a fake model: messages in, batches out, ends and failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from helios.errors import ExecutionError
from helios.scheduler import Request, SchedulerOptions
from helios.worker.channel import InProcessChannel
from helios.worker.messages import (
    Cancel,
    FailedEvent,
    Finish,
    FromWorker,
    ReadStatistics,
    RejectedEvent,
    Sampling,
    Shutdown,
    Statistics,
    Submit,
    TokensEvent,
    ToWorker,
    WorkerFailed,
)
from helios.worker.model_worker import ModelWorker
from tests.scheduler.driving import request
from tests.scheduler.fake_model import FakeModel, alone, geometry, scores_alone
from tests.scheduler.histories import PAGES

Answer = Callable[[Sequence[FromWorker]], Sequence[ToWorker]]


def submit(one: Request) -> Submit:
    s = one.sampling
    return Submit(
        one.request_id,
        list(one.prompt),
        one.output_limit,
        Sampling(s.temperature, s.top_k, s.top_p, s.min_p, s.seed),
        list(one.eos_ids),
        one.priority,
        one.score_prompt,
    )


class Client:
    """Gathers batches; asks for the end once every submitted request has had its last event."""

    def __init__(self, *messages: ToWorker, answer: Answer | None = None) -> None:
        self.batches: list[list[FromWorker]] = []
        self.pending = {m.request_id for m in messages if isinstance(m, Submit)}
        self.channel = InProcessChannel(self.deliver)
        self.answer = answer
        self.channel.post(messages)

    def deliver(self, messages: Sequence[FromWorker]) -> None:
        self.batches.append(list(messages))
        if self.answer is not None:
            self.channel.post(self.answer(messages))
        for message in messages:
            match message:
                case TokensEvent(finish=0):
                    pass
                case TokensEvent() | RejectedEvent() | FailedEvent():
                    self.pending.discard(message.request_id)
        if not self.pending:
            self.channel.post([Shutdown()])

    @property
    def messages(self) -> list[FromWorker]:
        return [message for batch in self.batches for message in batch]

    def events_of(self, request_id: int) -> list[TokensEvent]:
        return [
            m for m in self.messages if isinstance(m, TokensEvent) and m.request_id == request_id
        ]

    def tokens_of(self, request_id: int) -> list[int]:
        return [token for event in self.events_of(request_id) for token in event.tokens]


@pytest.mark.parametrize("frames", [1, 2])
def test_requests_are_served_and_counted(frames: int) -> None:
    requests = [request(i, prompt=3 + i, limit=5) for i in range(6)]
    model = FakeModel(geometry(pages=24))
    client = Client(*(submit(one) for one in requests))
    worker = ModelWorker(model, client.channel, SchedulerOptions(frames_in_flight=frames))
    worker.run()
    for one in requests:
        tokens, logprobs, finish = alone(one)
        events = client.events_of(one.request_id)
        assert client.tokens_of(one.request_id) == tokens
        assert [p for event in events for p in event.logprobs] == logprobs
        assert [event.finish for event in events][-1] == finish
        assert all(event.finish == 0 for event in events[:-1])
    assert worker.scheduler.idle


def test_a_prompts_scores_come_with_its_first_token() -> None:
    scored = replace(request(1, prompt=9, limit=3), score_prompt=True)
    client = Client(submit(scored), submit(request(2, prompt=9, limit=3)))
    ModelWorker(FakeModel(geometry(scored=((12, 4),))), client.channel).run()
    first, *others = client.events_of(1)
    assert list(first.prompt_logprobs) == scores_alone(scored.prompt)
    assert not any(event.prompt_logprobs for event in (*others, *client.events_of(2)))


def test_the_more_urgent_request_goes_first() -> None:
    ordinary, urgent = request(1, prompt=9, limit=3), request(2, prompt=9, limit=3)
    client = Client(submit(ordinary), submit(replace(urgent, priority=-1)))
    ModelWorker(FakeModel(geometry(slots=1)), client.channel).run()
    ends = [m.request_id for m in client.messages if isinstance(m, TokensEvent) and m.finish]
    assert ends == [2, 1]


def test_a_round_makes_one_batch() -> None:
    client = Client(*(submit(request(i, prompt=3, limit=4)) for i in range(3)))
    ModelWorker(FakeModel(geometry()), client.channel).run()
    tokens = [[m for m in batch if isinstance(m, TokensEvent)] for batch in client.batches]
    assert [len(batch) for batch in tokens] == [3, 3, 3, 3]


def test_the_next_round_is_submitted_before_the_wait() -> None:
    steps: list[tuple[str, int]] = []
    client = Client(submit(request(1, prompt=3, limit=4)))
    ModelWorker(
        FakeModel(geometry()),
        client.channel,
        trace=lambda step, sequence, began, ended: steps.append((step, sequence)),
    ).run()
    for sequence in (1, 3, 4):
        assert steps.index(("submit", sequence + 1)) < steps.index(("wait", sequence))
    # The prompt's first token is known before the request goes on.
    assert steps.index(("complete", 2)) < steps.index(("submit", 3))
    assert steps.index(("complete", 3)) < steps.index(("submit", 5))


@pytest.mark.parametrize("limit", [1, 6])
def test_tokens_are_sent_before_their_prompt_is_published_and_whoever_asks_finds_it_published(
    limit: int,
) -> None:
    published: list[int] = []

    def answer(messages: Sequence[FromWorker]) -> Sequence[ToWorker]:
        if not any(isinstance(message, TokensEvent) for message in messages):
            return ()
        published.append(worker.scheduler.cache.counters.published_pages)
        return [ReadStatistics()]

    client = Client(submit(request(1, prompt=9, limit=limit)), answer=answer)
    model = FakeModel(geometry(page_tokens=4, history=PAGES.rules))
    worker = ModelWorker(model, client.channel)
    worker.run()
    assert published[0] == 0
    told = [m.counters["pages_published"] for m in client.messages if isinstance(m, Statistics)]
    assert told[0] == 2
    assert worker.scheduler.settled


def test_a_launch_comes_before_what_the_client_is_told() -> None:
    steps: list[tuple[str, int]] = []
    client = Client(submit(request(1, prompt=3, limit=6)))
    ModelWorker(
        FakeModel(geometry()),
        client.channel,
        trace=lambda step, sequence, began, ended: steps.append((step, sequence)),
    ).run()
    for sequence in (3, 4):  # with two in flight
        after = steps[steps.index(("complete", sequence)) :]
        assert after.index(("submit", sequence + 2)) < after.index(("send", 0))
    assert len(client.tokens_of(1)) == 6


def test_tokens_of_a_completed_round_are_told_before_an_end() -> None:
    """An answer to a message follows what the rounds before it have brought."""
    told: list[int] = []

    def cancel_once(messages: Sequence[FromWorker]) -> Sequence[ToWorker]:
        told.extend(len(m.tokens) for m in messages if isinstance(m, TokensEvent))
        return [Cancel(1)] if sum(told) == 3 else []

    client = Client(submit(request(1, limit=20)), answer=cancel_once)
    ModelWorker(FakeModel(geometry(pages=20)), client.channel).run()
    *others, last = client.events_of(1)
    assert last.finish == Finish.CANCELLED
    assert not last.tokens
    assert [len(one.tokens) for one in others] == [1] * len(others)
    assert client.tokens_of(1) == alone(request(1, limit=20))[0][: len(others)]


def test_refusals_name_the_request_and_the_reason() -> None:
    client = Client(
        submit(request(1, prompt=30, limit=30)), submit(request(2)), submit(request(3, prompt=()))
    )
    ModelWorker(FakeModel(geometry()), client.channel).run()
    first, second = (m for m in client.messages if isinstance(m, RejectedEvent))
    assert (first.request_id, second.request_id) == (1, 3)
    assert "60 tokens of a context of 40" in first.message
    assert "empty" in second.message
    assert client.tokens_of(2) == alone(request(2))[0]


def test_a_cancelled_request_ends_and_others_go_on() -> None:
    def cancel_first(messages: Sequence[FromWorker]) -> Sequence[ToWorker]:
        return [
            Cancel(1)
            for m in messages
            if isinstance(m, TokensEvent) and m.request_id == 1 and not m.finish
        ]

    client = Client(submit(request(1, limit=20)), submit(request(2, limit=20)), answer=cancel_first)
    ModelWorker(FakeModel(geometry(pages=20)), client.channel).run()
    assert client.events_of(1)[-1].finish == Finish.CANCELLED
    assert len(client.tokens_of(1)) < 20
    assert client.tokens_of(2) == alone(request(2, limit=20))[0]


def test_statistics_tell_counts_and_gauges() -> None:
    model = FakeModel(geometry(slots=2))
    client = Client(
        *(submit(request(i, prompt=3, limit=2)) for i in range(3)),
        submit(request(9, prompt=())),
        ReadStatistics(),
    )
    worker = ModelWorker(model, client.channel)
    worker.run()
    (at_first,) = (m for m in client.messages if isinstance(m, Statistics))
    assert at_first.counters["requests_submitted"] == 3
    assert at_first.counters["requests_rejected"] == 1
    assert at_first.counters["prompt_tokens"] == 9
    assert at_first.gauges["requests_waiting"] == 3
    assert at_first.gauges["pages_free"] == 12
    last = Client(ReadStatistics(), Shutdown())
    worker = ModelWorker(model, last.channel)
    worker.run()
    (fresh,) = (m for m in last.messages if isinstance(m, Statistics))
    assert fresh.rounds == {"initialize": 0, "prefill": 0, "decode": 0}


def test_statistics_count_rounds_and_finishes() -> None:
    asked = False

    def ask(messages: Sequence[FromWorker]) -> Sequence[ToWorker]:
        nonlocal asked
        if asked or not any(isinstance(m, TokensEvent) and m.finish for m in messages):
            return []
        asked = True
        return [ReadStatistics()]

    client = Client(submit(request(1, prompt=20, limit=3)), answer=ask)
    ModelWorker(FakeModel(geometry()), client.channel).run()
    (told,) = (m for m in client.messages if isinstance(m, Statistics))
    assert told.rounds == {"initialize": 1, "prefill": 2, "decode": 2}
    assert told.launches == {"initialize": 3, "prefill": 6, "decode": 6}
    assert told.finished == dict.fromkeys(told.finished, 0) | {"limit": 1}
    assert set(told.finished) == {"eos", "limit", "stop", "cancelled", "failed", "grammar"}
    assert told.counters["output_tokens"] == 3
    assert told.gauges["requests_running"] == 0


@pytest.mark.parametrize("breaks_at", [1, 2, 4])
def test_a_failing_device_fails_every_request_and_ends_the_worker(breaks_at: int) -> None:
    model = FakeModel(geometry(slots=2))
    model.breaks_at = breaks_at
    client = Client(*(submit(request(i, limit=9)) for i in range(4)))
    with pytest.raises(ExecutionError, match="the program broke"):
        ModelWorker(model, client.channel).run()
    failed = [m for m in client.messages if isinstance(m, FailedEvent)]
    assert sorted(m.request_id for m in failed) == [0, 1, 2, 3]
    last = client.messages[-1]
    assert isinstance(last, WorkerFailed)
    assert last.error == "ExecutionError"


def test_a_client_that_goes_away_ends_the_worker_after_the_fence() -> None:
    model = FakeModel(geometry())
    client = Client(submit(request(1, limit=30)))

    def leave(messages: Sequence[FromWorker]) -> Sequence[ToWorker]:
        client.channel.close()
        return []

    client.answer = leave
    worker = ModelWorker(model, client.channel)
    worker.run()
    assert worker.scheduler.idle
    assert model.queued == 0
    assert len(client.batches) == 1


def test_shutdown_cancels_what_runs_and_what_comes_after() -> None:
    client = Client(submit(request(1, limit=30)), Shutdown(), submit(request(2)))
    ModelWorker(FakeModel(geometry()), client.channel).run()
    assert [event.finish for event in client.events_of(1)] == [Finish.CANCELLED]
    assert [event.finish for event in client.events_of(2)] == [Finish.CANCELLED]
