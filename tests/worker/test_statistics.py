"""What the worker's statistics say of rounds, of requests' times and of the prompts' tokens."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from helios.runtime.geometry import Geometry, Operation
from helios.scheduler import Scheduler, SchedulerOptions
from helios.worker.client_requests import ClientRequests
from helios.worker.grammars import no_vocabulary
from helios.worker.held_requests import no_token_bytes
from helios.worker.histograms import HistogramCounts
from helios.worker.messages import (
    Cancel,
    Finish,
    FromWorker,
    ProgramCounts,
    ReadStatistics,
    Statistics,
    TokensEvent,
    ToWorker,
)
from helios.worker.model_worker import ModelWorker
from helios.worker.request_times import RequestTimes
from tests.scheduler.driving import request
from tests.scheduler.fake_model import FakeModel, geometry
from tests.scheduler.histories import PARTIAL_PAGES
from tests.worker.test_model_worker import Client, submit


def read_at_the_end(*messages: ToWorker, shape: Geometry, requests: int) -> Statistics:
    """The statistics once so many requests have ended."""
    left = requests

    def ask(batch: Sequence[FromWorker]) -> Sequence[ToWorker]:
        nonlocal left
        left -= sum(1 for m in batch if isinstance(m, TokensEvent) and m.finish)
        return [ReadStatistics()] if not left and not _statistics(batch) else []

    client = Client(*messages, answer=ask)
    ModelWorker(FakeModel(shape), client.channel, SchedulerOptions(frames_in_flight=1)).run()
    return _statistics(client.messages)[-1]


def _statistics(messages: Sequence[FromWorker]) -> list[Statistics]:
    return [message for message in messages if isinstance(message, Statistics)]


@pytest.mark.clause("OBS-6")
def test_programs_say_what_they_had_room_for() -> None:
    # A prompt of 6 and one of 3 tokens in the program of 16; four more tokens each in that of two
    # lanes, where one of them ends sooner.
    shape = geometry(prefill=((16, 4),), decode=(2,), initialize=(4,))
    requests = [request(1, prompt=6, limit=5), request(2, prompt=3, limit=3)]
    found = read_at_the_end(*map(submit, requests), shape=shape, requests=2)
    assert found.programs == {
        "initialize.b4": ProgramCounts("initialize", 1, 3, 2, 4, 0, 0),
        "prefill.p16": ProgramCounts("prefill", 1, 3, 2, 4, 9, 16),
        "decode.b2": ProgramCounts("decode", 4, 12, 2 + 2 + 1 + 1, 8, 6, 8),
    }
    assert found.rounds == {"initialize": 1, "prefill": 1, "decode": 4}
    assert found.launches == {"initialize": 3, "prefill": 3, "decode": 12}
    assert found.gauges["frames"] == 1
    assert found.usage.resident_nbytes > 0
    assert found.usage.cpu_s > 0


def test_programs_are_there_before_they_have_run() -> None:
    shape = geometry(prefill=((16, 4),), decode=(1, 2), initialize=(4,))
    found = read_at_the_end(submit(request(1, limit=2)), shape=shape, requests=1)
    assert found.programs["decode.b2"] == ProgramCounts("decode", 0, 0, 0, 0, 0, 0)


@pytest.mark.clause("OBS-6")
def test_cached_tokens_are_those_that_first_admissions_found() -> None:
    prompt = tuple(range(9))
    requests = [replace(request(number, limit=2), prompt=prompt) for number in (1, 2)]
    shape = geometry(slots=1, pages=8, history=PARTIAL_PAGES.rules)
    found = read_at_the_end(*map(submit, requests), shape=shape, requests=2).counters
    assert found["prompt_tokens"] == 18
    assert found["cached_tokens"] == found["prefix_reused_tokens"] == 8
    assert found["prefix_hits"] == 1
    assert found["prefix_queries"] == 2


def test_every_request_waits_once_and_begins_once() -> None:
    requests = [request(number, prompt=5, limit=12) for number in range(6)]
    # Pages for little more than two of them: the others are preempted and readmitted.
    shape = geometry(slots=4, pages=9)
    found = read_at_the_end(*map(submit, requests), shape=shape, requests=6)
    assert found.counters["preemptions"] > 0
    assert found.histograms["request_queue_seconds"].count == 6
    assert found.histograms["request_prefill_seconds"].count == 6


def test_who_is_cancelled_in_the_queue_has_no_times() -> None:
    running, waiting = request(1, limit=3), request(2, limit=3)
    messages = [submit(running), submit(waiting), Cancel(2)]
    found = read_at_the_end(*messages, shape=geometry(slots=1), requests=2)
    assert found.finished["cancelled"] == 1
    assert found.histograms["request_queue_seconds"].count == 1
    assert found.histograms["request_prefill_seconds"].count == 1


def test_who_is_cancelled_before_a_token_waited_and_began_nothing() -> None:
    scheduler = Scheduler(geometry())
    times = RequestTimes(time.monotonic_ns)
    requests = ClientRequests(scheduler, times, no_token_bytes, no_vocabulary)
    requests.arrive(submit(request(1)))
    planned = scheduler.plan()
    assert planned is not None
    scheduler.begin(planned, 1)
    times.begun(planned)
    (message,) = requests.messages(scheduler.cancel(1))
    assert isinstance(message, TokensEvent)
    assert message.finish == Finish.CANCELLED
    found = times.histograms()
    assert found["request_queue_seconds"].count == 1
    assert found["request_prefill_seconds"].count == 0


@pytest.mark.clause("OBS-6")
def test_ends_are_kept_apart() -> None:
    requests = [request(1, limit=3), request(2, limit=3), request(3, limit=3)]
    refused = request(4, prompt=39, limit=30)
    messages = [*map(submit, requests), submit(refused), Cancel(2)]
    found = read_at_the_end(*messages, shape=geometry(), requests=3)
    finished = {reason for reason, count in found.finished.items() if count}
    assert set(found.finished) == {finish.name.lower() for finish in Finish}
    assert found.finished["cancelled"] == 1
    assert finished <= {"cancelled", "limit", "eos"}
    assert found.counters["requests_rejected"] == 1
    assert found.counters["requests_submitted"] == sum(found.finished.values()) == 3


class _Planned:
    """As much of a planned round as times need."""

    def __init__(self, operation: Operation, *ids: int) -> None:
        self.program = geometry().of(operation)[0]
        self.residents = [_Resident(number) for number in ids]


class _Resident:
    def __init__(self, number: int) -> None:
        self.progress = self
        self.request = request(number)


def _clock(*seconds: float) -> Iterator[int]:
    return iter([round(second * 1e9) for second in seconds])


def _seconds(counts: HistogramCounts) -> tuple[int, float]:
    return counts.count, round(counts.sum, 6)


def test_times_are_measured_from_submission_to_admission_to_the_first_token() -> None:
    clock = _clock(1, 2, 5, 5.5, 9)
    times = RequestTimes(lambda: next(clock))
    times.submitted(1)  # at 1 s
    times.submitted(2)  # at 2 s
    times.begun(_Planned(Operation.INITIALIZE, 1, 2))  # type: ignore[arg-type]  # at 5 s
    times.begun(_Planned(Operation.PREFILL, 1, 2))  # type: ignore[arg-type]  # reads no clock
    times.tokens(2)  # at 5.5 s
    times.tokens(2)
    times.begun(_Planned(Operation.INITIALIZE, 2))  # type: ignore[arg-type]  # readmitted, at 9 s
    times.forget(1)
    times.tokens(1)
    found = times.histograms()
    assert _seconds(found["request_queue_seconds"]) == (2, 4 + 3)
    assert _seconds(found["request_prefill_seconds"]) == (1, 0.5)
    assert not times._submitted
    assert not times._admitted
