"""Permits, queues, dropped clients and rejections, over real sockets and a device that stands still
where a test wants it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from helios.contract.enums import Operation
from helios.frontend.prepare import PreparedRequest, Preparer
from helios.scheduler import Finish
from helios.server.http_server import EndTimes
from tests.server.slow_reader import SlowReader, body_of
from tests.server.stepped import DEADLINE_S, SteppedServer, stepped_server

PATH, CHAT_PATH = "/v1/completions", "/v1/chat/completions"
# Room for one whole context and next to nothing else.
CACHE_NBYTES = 160 << 10
STREAMS = pytest.mark.parametrize("stream", [False, True])
# What a slow reader is too slow for: every id has a chunk of its own.
OBSERVED: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": 300,
    "stream": True,
    "return_token_ids": True,
}


def body(**more: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": [7, 8, 9], "max_tokens": 20} | more


def ask(server: SteppedServer, **more: Any) -> httpx.Response:
    return httpx.post(server.url + PATH, json=body(**more), timeout=DEADLINE_S)


@dataclass
class Gate:
    """Preparation of prompts that begin with token 3 waits here; `bad` ones ask the worker for more
    than it can give."""

    entered: int = 0
    most: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)
    opened: bool = False

    def pass_through(self) -> None:
        with self.changed:
            self.entered += 1
            self.most = max(self.most, self.entered)
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.opened, DEADLINE_S)
            self.entered -= 1

    def until_entered(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.entered == count, DEADLINE_S)

    def open(self) -> None:
        with self.changed:
            self.opened = True
            self.changed.notify_all()


GATED = [3, 8, 9]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    prepare = Preparer.prepare_completion

    def gated(self: Preparer, prompt: Any, *arguments: Any, **more: Any) -> PreparedRequest:
        if prompt == GATED:
            gate.pass_through()
        return prepare(self, prompt, *arguments, **more)

    monkeypatch.setattr(Preparer, "prepare_completion", gated)
    yield gate
    gate.open()


@contextmanager
def asking(
    server: SteppedServer, *bodies: dict[str, Any]
) -> Iterator[list[Future[httpx.Response]]]:
    """Requests that are under way until the block ends; rounds then complete."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        try:
            yield [pool.submit(ask, server, **more) for more in bodies]
        finally:
            server.device.run_freely()


def _streamed_ids(answer: bytes) -> list[int]:
    """The ids of a complete stream with `return_token_ids`."""
    *chunks, done = body_of(answer).decode().split("\n\n")[:-1]
    assert done == "data: [DONE]"
    choices = [choice for chunk in chunks for choice in json.loads(chunk[6:])["choices"]]
    return [token for choice in choices for token in choice.get("token_ids", [])]


def running_tokens(server: SteppedServer) -> int:
    return server.scheduler.counters.output_tokens


# ------------------------------------------------------------ permits


@pytest.mark.clause("HTTP-1", "HTTP-4")
def test_permits_count_preparation_queue_and_undelivered_answers(
    core_folder: Path, gate: Gate
) -> None:
    """Two slots and a queue of two make four permits: one request runs, one waits for a slot, one
    is being prepared, and one has been answered and not read."""
    with (
        stepped_server(core_folder, slots=2, queue_capacity=2, frontend_workers=2) as server,
        SlowReader(server.url, CHAT_PATH, OBSERVED) as reader,
    ):
        first = reader.some()
        server.until(lambda: server.scheduler.running == 1)
        server.device.step(1000)
        server.until(lambda: server.scheduler.counters.finished[Finish.LIMIT] == 1)
        server.until_idle()
        held = len(server.device.rounds)
        assert server.permits == 1, "it has been answered, and holds no slot"
        server.device.step(held - server.device.allowed)  # everything stands still from here
        with asking(server, body(), body(n=2), body(prompt=GATED)) as answers:
            gate.until_entered(1)
            server.until(lambda: server.scheduler.running + server.scheduler.waiting == 3)
            server.until_permits(4)
            for _ in range(2):
                refused = ask(server)
                assert refused.status_code == 429
                assert refused.json()["error"]["code"] == "queue_full"
                assert refused.headers["retry-after"]
            # Whoever leaves its state, whichever it was, makes room for exactly one more.
            rest = first + reader.rest()
            assert rest.rstrip().endswith(b"0")  # the last chunk's length
            server.until_permits(3)
            with asking(server, body()) as more:
                server.until_permits(4)
                assert ask(server).status_code == 429
                gate.open()
                server.device.run_freely()
                assert {answer.result().status_code for answer in (*answers, *more)} == {200}
        assert len(_streamed_ids(rest)) == OBSERVED["max_tokens"]
        assert server.metrics()["flare_http_refused_total"] == 3
        server.assert_balanced()


@pytest.mark.clause("HTTP-2")
@pytest.mark.parametrize("workers", [1, 3])
def test_preparation_has_its_slots_and_who_waits_for_one_blocks_nobody(
    core_folder: Path, gate: Gate, workers: int
) -> None:
    with stepped_server(core_folder, slots=4, queue_capacity=4, frontend_workers=workers) as server:
        server.device.run_freely()
        with asking(server, *(body(prompt=GATED, max_tokens=1) for _ in range(5))) as answers:
            gate.until_entered(workers)
            server.until_permits(5)
            # The event loop goes on: these need no preparation.
            assert server.http.get("/health").status_code == 200
            assert server.http.get("/v1/models").status_code == 200
            assert gate.entered == workers
            gate.open()
            assert {answer.result().status_code for answer in answers} == {200}
        assert gate.most == workers
        server.assert_balanced()


@pytest.mark.clause("HTTP-2", "HTTP-8")
def test_queues_hold_their_capacity_while_slots_stand_empty(core_folder: Path) -> None:
    """Pages for one long request, slots for six, a queue of one: one runs, one is in the queue,
    one in the ingress, and the others wait in the HTTP process. All are served."""
    with stepped_server(
        core_folder, slots=6, queue_capacity=1, cache_nbytes=CACHE_NBYTES, prefix_reuse=False
    ) as server:
        long = [7 + i % 60 for i in range(400)]
        geometry = server.scheduler.geometry
        assert geometry.cache_pages * geometry.page_tokens < 2 * len(long)
        with asking(server, *(body(prompt=long, max_tokens=3) for _ in range(7))) as answers:
            server.until_permits(7)
            server.until(lambda: len(server.worker._requests.ingress) == 1)
            assert ask(server).status_code == 429
            assert (server.scheduler.running, server.scheduler.waiting) == (1, 1)
            most = 0
            while any(not answer.done() for answer in answers):
                server.device.step()
                most = max(most, server.scheduler.waiting, len(server.worker._requests.ingress))
            assert most == 1
            assert {answer.result().status_code for answer in answers} == {200}
        assert server.scheduler.counters.rejected == 0
        server.assert_balanced()


# ------------------------------------------------------------ clients that go away


class Dropped:
    """A client that `leave`s while its request is under way."""

    def __init__(self, server: SteppedServer, **more: Any) -> None:
        self._reader = SlowReader(server.url, PATH, body(**more))

    def __enter__(self) -> Dropped:
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()

    def leave(self) -> None:
        self._reader.__exit__()


@pytest.mark.clause("HTTP-3")
@STREAMS
def test_dropped_while_it_waits_for_preparation_and_while_it_is_prepared(
    core_folder: Path, gate: Gate, stream: bool
) -> None:
    with stepped_server(core_folder, frontend_workers=1) as server:
        with Dropped(server, prompt=GATED, stream=stream) as prepared:
            gate.until_entered(1)
            with Dropped(server, prompt=GATED, stream=stream):
                server.until_permits(2)
            server.until_permits(1)
            prepared.leave()
            server.until_permits(0)
        gate.open()
        server.device.run_freely()
        assert ask(server).status_code == 200
        assert server.scheduler.counters.submitted == 1, "nothing of those two reached the model"
        server.assert_balanced()


@pytest.mark.clause("HTTP-3")
@STREAMS
@pytest.mark.parametrize("choices", [1, 3])
def test_dropped_in_the_queue(core_folder: Path, stream: bool, choices: int) -> None:
    with stepped_server(core_folder, slots=1) as server:
        with asking(server, body()) as answers:
            server.until(lambda: server.scheduler.running == 1)
            with Dropped(server, stream=stream, n=choices):
                server.until(lambda: server.scheduler.waiting == choices)
            server.until(lambda: server.scheduler.counters.finished[Finish.CANCELLED] == choices)
            assert server.scheduler.waiting == 0
            server.until_permits(1)
            server.device.run_freely()
            assert answers[0].result().status_code == 200
        assert len({slot for one in server.device.rounds for slot in one.slots}) == 1
        assert sum(one.operation is Operation.INITIALIZE for one in server.device.rounds) == 1
        server.assert_balanced()


def _dropped_with_lanes(server: SteppedServer, lanes: int, dropped: Dropped) -> None:
    """Once its client has gone, whatever the worker plans is without the request's lanes: at most
    one round that hasn't begun yet still has them, and then its slots are free."""
    running = server.scheduler.running
    dropped.leave()
    server.until(lambda: server.scheduler.counters.finished[Finish.CANCELLED] == lanes)
    before = len(server.device.rounds)
    assert before - server.device.allowed <= 2, "one is running, one may be queued"
    server.device.step(before - server.device.allowed)
    server.until(lambda: server.scheduler.slots.free >= lanes)
    server.until(lambda: server.scheduler.running == running - lanes)


@pytest.mark.clause("HTTP-3")
@STREAMS
def test_dropped_while_its_prompt_is_computed(core_folder: Path, stream: bool) -> None:
    """Four chunks of a prompt; no further one is computed."""
    with stepped_server(core_folder, slots=1) as server:
        with Dropped(server, prompt=[7 + i % 60 for i in range(400)], stream=stream) as dropped:
            server.device.step()  # its state; its first chunk stands still
            server.until(lambda: server.device.waited_for == 2)
            _dropped_with_lanes(server, 1, dropped)
        prompts = [one for one in server.device.rounds if one.operation is Operation.PREFILL]
        assert 1 <= len(prompts) <= 2
        assert running_tokens(server) == 0
        server.assert_balanced()


@pytest.mark.clause("HTTP-3")
@STREAMS
@pytest.mark.parametrize("choices", [1, 2])
def test_an_abandoned_answer_frees_its_lanes_within_one_round(
    core_folder: Path, stream: bool, choices: int
) -> None:
    """Another request's stream goes on beside it, with all of its tokens."""
    with (
        stepped_server(core_folder, slots=3) as server,
        asking(server, body(max_tokens=60)) as (other,),
    ):
        server.until(lambda: server.scheduler.running == 1)
        with Dropped(server, stream=stream, n=choices, max_tokens=200, prompt=[9]) as dropped:
            server.until(lambda: server.scheduler.running + server.scheduler.waiting == 1 + choices)
            while server.scheduler.running < 1 + choices or running_tokens(server) < 12:
                server.device.step()
                server.until(lambda: server.device.waited_for > server.device.allowed)
            before = len(server.device.rounds)
            _dropped_with_lanes(server, choices, dropped)
        server.device.run_freely()
        assert other.result().json()["usage"]["completion_tokens"] == 60
        after = server.device.rounds[before:]
        assert len(after) > 20
        assert {len(one.slots) for one in after if one.operation is Operation.DECODE} == {1}
        server.assert_balanced()


# ------------------------------------------------------------ rejection and shortage


@pytest.fixture
def beyond_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts that begin with token 4 ask for more than preparation would let pass, as if only the
    scheduler knew."""
    prepare = Preparer.prepare_completion

    def careless(self: Preparer, prompt: Any, *arguments: Any, **more: Any) -> PreparedRequest:
        prepared = prepare(self, prompt, *arguments, **more)
        return replace(prepared, output_limit=10_000) if prompt[0] == 4 else prepared

    monkeypatch.setattr(Preparer, "prepare_completion", careless)


@pytest.mark.clause("HTTP-7", "HTTP-8")
@pytest.mark.usefixtures("beyond_capacity")
@pytest.mark.parametrize("choices", [1, 2])
def test_a_rejection_is_503_and_nobody_elses_business(core_folder: Path, choices: int) -> None:
    with stepped_server(core_folder, slots=2) as server:
        with asking(server, body(max_tokens=40)) as (other,):
            server.until(lambda: server.scheduler.running == 1)
            for _ in range(6):
                server.device.step()
            server.until(lambda: running_tokens(server) > 2)
            whole = ask(server, prompt=[4], n=choices)
            assert (whole.status_code, whole.json()["error"]["code"]) == (503, "not_admitted")
            streamed = ask(server, prompt=[4], n=choices, stream=True)
            assert streamed.status_code == 200
            *chunks, last = [line[6:] for line in streamed.text.split("\n") if line]
            assert json.loads(last)["error"]["code"] == "not_admitted"
            assert not any("error" in json.loads(chunk) for chunk in chunks)
            assert server.scheduler.counters.rejected == 2 * choices
            assert server.scheduler.running == 1
            assert server.http.get("/health").status_code == 200
            assert server.http.get("/ready").status_code == 200
            server.device.run_freely()
            assert other.result().json()["usage"]["completion_tokens"] == 40
        assert server.scheduler.counters.finished[Finish.CANCELLED] == 0
        server.assert_balanced()


@pytest.mark.clause("HTTP-8")
def test_requests_that_outgrow_the_cache_together_wait_and_are_all_answered(
    core_folder: Path,
) -> None:
    """Each of them fits into the cache alone, no two do: they take turns by preemption, and what
    earlier ones have left is reclaimed."""
    with stepped_server(
        core_folder, slots=4, queue_capacity=4, cache_nbytes=CACHE_NBYTES
    ) as server:
        server.device.run_freely()
        bodies = [body(prompt=[9 + i] * 40, max_tokens=400) for i in range(8)]
        with asking(server, *bodies) as answers:
            for answer in answers:
                assert answer.result().json()["usage"]["completion_tokens"] == 400
        assert server.scheduler.counters.rejected == 0
        assert server.scheduler.counters.preemptions > 0
        assert server.scheduler.cache.counters.evicted_pages > 0
        assert server.http.get("/health").status_code == 200
        server.assert_balanced()


@pytest.mark.clause("HTTP-7")
def test_what_the_contract_alone_decides_never_reaches_the_scheduler(core_folder: Path) -> None:
    with stepped_server(core_folder) as server:
        vocabulary = server.scheduler.geometry.vocabulary_tokens
        for more in (
            {"prompt": [7] * 600},
            {"prompt": [7], "max_tokens": 512},
            {"prompt": [10**6]},
            {"prompt": [7], "logit_bias": {str(vocabulary): 1.0}},
            {"prompt": [7], "stop_token_ids": [vocabulary]},
            {"prompt": [7], "min_tokens": 21},
        ):
            refused = ask(server, **more)
            assert refused.status_code == 400, more
            assert refused.json()["error"]["param"]
        counters = server.scheduler.counters
        assert (counters.submitted, counters.rejected) == (0, 0)
        server.assert_balanced()


# ------------------------------------------------------------ readers that pause


@pytest.mark.clause("HTTP-4", "HTTP-5")
@pytest.mark.parametrize("capacity", [0, 1])
def test_a_paused_reader_loses_nothing_and_holds_up_nobody(
    core_folder: Path, capacity: int
) -> None:
    """The device runs on to the answer's end, and others are answered, while it is read by nobody;
    the events that wait are more than the core's `event_capacity`."""
    with (
        stepped_server(core_folder, event_capacity=capacity) as server,
        SlowReader(server.url, CHAT_PATH, OBSERVED) as reader,
    ):
        first = reader.some()
        server.device.run_freely()
        assert ask(server).status_code == 200
        server.until(lambda: server.scheduler.counters.finished[Finish.LIMIT] == 2)
        server.until_idle()
        assert server.scheduler.slots.free == server.scheduler.slots.slots
        assert server.permits == 1
        ids = _streamed_ids(first + reader.rest())
        assert ids == [5 + (ids[0] - 5 + i) % 80 for i in range(OBSERVED["max_tokens"])]
        server.assert_balanced()


# ------------------------------------------------------------ the end


@pytest.mark.clause("HTTP-6")
def test_the_end_drops_who_doesnt_read_and_leaves_the_device_its_own_drain(
    core_folder: Path,
) -> None:
    """Connections are gone while a round is still on the device; the worker ends behind it."""
    with (
        stepped_server(core_folder) as server,
        SlowReader(server.url, PATH, body(max_tokens=300, stream=True)) as running,
    ):
        running.some()
        server.device.step(4)
        server.until(lambda: server.device.waited_for == 5)
        server.stop()
        assert b'"code":"cancelled"' in running.rest()
        server.until(lambda: server.worker._ending)
        assert server.process.thread.is_alive()
        assert server.scheduler.frames_in_flight == 2
        assert server.scheduler.slots.free != server.scheduler.slots.slots
        server.device.run_freely()
        server.process.thread.join(DEADLINE_S)
        assert not server.process.thread.is_alive()
        assert server.scheduler.idle
        assert not server.scheduler.frames_in_flight


@pytest.mark.clause("HTTP-6")
@pytest.mark.parametrize("shutdown_timeout_s", [0.0, 20.0])
def test_connections_drain_for_five_seconds_after_the_time_out(shutdown_timeout_s: float) -> None:
    times = EndTimes.after(shutdown_timeout_s)
    assert times.answers + times.delivery == shutdown_timeout_s + 5
