"""The worker stops requests and says when their tokens were completed."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import msgspec
import pytest

from helios.frontend.tokenizer import Tokenizer
from helios.runtime.geometry import Geometry
from helios.runtime.rounds import Round
from helios.scheduler import Request
from helios.worker.messages import Finish, Stops, Submit, TokensEvent
from helios.worker.model_worker import ModelWorker
from tests.frontend.vocabularies import byte_level
from tests.scheduler.driving import request
from tests.scheduler.fake_model import FakeModel, alone, geometry
from tests.worker.test_model_worker import Client, submit

# The fake model's tokens are those of letters in this vocabulary.
TOKENIZER = Tokenizer(byte_level())


class CountingClock:
    """Another nanosecond each time it is read; writes into `journal`."""

    def __init__(self, journal: list[str]) -> None:
        self.reads = 0
        self.journal = journal

    def __call__(self) -> int:
        self.reads += 1
        self.journal.append("clock")
        return 1000 + self.reads


class DepthModel(FakeModel):
    """Notes how many rounds wait at each submission."""

    def __init__(self, shape: Geometry) -> None:
        super().__init__(shape)
        self.depths: list[int] = []

    def submit(self, round_: Round) -> int:
        sequence = super().submit(round_)
        self.depths.append(self.queued)
        return sequence


def run(
    *messages: Submit, clock: Callable[[], int] | None = None, model: FakeModel | None = None
) -> Client:
    client = Client(*messages)
    ModelWorker(
        model or FakeModel(geometry(pages=24)),
        client.channel,
        open_token_bytes=lambda: TOKENIZER,
        origin_ns=1000,
        clock=clock or time.monotonic_ns,
    ).run()
    return client


def stopping(one: Request, *strings: str, sequences: tuple[tuple[int, ...], ...] = ()) -> Submit:
    return msgspec.structs.replace(submit(one), stops=Stops(strings, sequences, True))


def text_of(tokens: list[int]) -> str:
    return b"".join(TOKENIZER.token_bytes(t) for t in tokens if t > 2).decode(errors="replace")


ONE = request(1, prompt=3, limit=12)
TOKENS = alone(ONE)[0]


@pytest.mark.clause("STOP-4", "STOP-5", "STOP-6")
@pytest.mark.parametrize("last", range(1, 12))
def test_a_stop_sequence_ends_a_request_with_its_last_token(last: int) -> None:
    model = FakeModel(geometry(pages=24))
    client = run(stopping(ONE, sequences=(tuple(TOKENS[last - 1 : last + 1]),)), model=model)
    first = next(i for i in range(1, 12) if TOKENS[i - 1 : i + 1] == TOKENS[last - 1 : last + 1])
    assert client.tokens_of(1) == TOKENS[: first + 1]
    assert client.events_of(1)[-1].finish == Finish.STOP
    # Its prompt's round and one for each later token, and none after the stop.
    rounds = [name for name in model.programs_run if not name.startswith("initialize")]
    assert len(rounds) == first + 1


@pytest.mark.clause("STOP-2", "STOP-4")
def test_a_stop_string_ends_a_request_and_no_other() -> None:
    other = request(2, prompt=4, limit=12)
    text = text_of(TOKENS)
    stop = text[4:6]
    client = run(stopping(ONE, stop), submit(other))
    got = client.tokens_of(1)
    assert stop in text_of(got)
    assert stop not in text_of(got[:-1])
    assert client.events_of(1)[-1].finish == Finish.STOP
    assert client.tokens_of(2) == alone(other)[0]


@pytest.mark.clause("STOP-5", "FRONT-15")
def test_a_stop_in_the_last_token_is_a_stop_and_an_end_is_an_end() -> None:
    limited = request(1, prompt=3, limit=3)
    client = run(stopping(limited, sequences=((TOKENS[2],),)))
    assert client.events_of(1)[-1].finish == Finish.STOP
    ending = request(1, prompt=3, limit=12, eos_ids=(TOKENS[2],))
    client = run(stopping(ending, sequences=((TOKENS[2],),)))
    assert client.events_of(1)[-1].finish == Finish.EOS
    never = tuple(t for t in range(23) if t not in TOKENS)[:1]
    assert run(stopping(limited, sequences=(never,))).events_of(1)[-1].finish == Finish.LIMIT


# ---------------------------------------------------------------- observation


def timed(one: Request) -> Submit:
    return msgspec.structs.replace(submit(one), observed=True, timed=True)


@pytest.mark.clause("OBS-2")
def test_unobserved_requests_read_no_clock() -> None:
    clock = CountingClock([])
    observed = msgspec.structs.replace(submit(request(3, prompt=3)), observed=True)
    client = run(submit(ONE), stopping(request(2, prompt=3), "x"), observed, clock=clock)
    assert clock.reads == 0
    assert {event.completed_ns for event in client.events_of(1)} == {0}


@pytest.mark.clause("OBS-2")
def test_a_timed_token_has_the_time_of_its_completion() -> None:
    clock = CountingClock([])
    client = run(timed(ONE), clock=clock)
    assert [event.completed_ns for event in client.events_of(1)] == list(range(1, 13))
    assert clock.reads == 12, "once a round with a token"


@pytest.mark.clause("OBS-2")
def test_others_are_not_timed_beside_a_timed_request() -> None:
    clock = CountingClock([])
    late = request(2, prompt=3, limit=20)
    client = run(timed(request(1, prompt=3, limit=2)), submit(late), clock=clock)
    assert {event.completed_ns for event in client.events_of(2)} == {0}
    assert clock.reads == 2


@pytest.mark.clause("OBS-2")
def test_times_are_taken_between_validation_and_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    journal: list[str] = []
    client = Client(msgspec.structs.replace(timed(ONE), stops=Stops((), ((TOKENS[3],),), True)))
    worker = ModelWorker(
        FakeModel(geometry(pages=24)), client.channel, clock=CountingClock(journal)
    )
    complete, ends = worker.scheduler.complete, worker._requests._stops.ends

    def noting(name: str, call: Callable[..., object], *arguments: object) -> object:
        result = call(*arguments)
        journal.append(name)
        return result

    monkeypatch.setattr(worker.scheduler, "complete", functools.partial(noting, "valid", complete))
    monkeypatch.setattr(worker._requests._stops, "ends", functools.partial(noting, "stops", ends))
    worker.run()
    # The first round, which gives the request its state, has no token.
    assert journal == ["valid", *["valid", "clock", "stops"] * 4]


@pytest.mark.clause("OBS-1", "OBS-5")
def test_observation_changes_no_round() -> None:
    ran = []
    for message in (submit(ONE), timed(ONE)):
        model = DepthModel(geometry(pages=24))
        client = run(message, submit(request(2, prompt=9, limit=6)), model=model)
        assert max(model.depths) == 2
        ran.append((model.programs_run, model.depths, model.lanes_submitted, client.tokens_of(1)))
    assert ran[0] == ran[1]


@pytest.mark.clause("OBS-3")
def test_events_tell_what_was_reused() -> None:
    events = [m for m in run(submit(ONE)).messages if isinstance(m, TokensEvent)]
    assert {event.reused_prompt_tokens for event in events} == {0}
