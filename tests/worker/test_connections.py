"""One worker, several HTTP processes: whose events go where, who may end what, questions."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from helios.worker.channel import BatchDecoder, encode_batch
from helios.worker.connections import ConnectionsChannel, ProcessConnection, hand_in
from helios.worker.messages import (
    BooksBroken,
    Cancel,
    Finish,
    Progress,
    ReadProgress,
    Shutdown,
    Submit,
    TokensEvent,
    ToWorker,
)
from helios.worker.peer_messages import Ask, Asked, AskedAnswer, AskResult, FromProcess, ToProcess
from helios.worker.process_numbers import process_of, request_ids
from tests.scheduler.driving import request
from tests.worker.test_model_worker import submit


@dataclass
class Process:
    """An HTTP process's end."""

    number: int
    connection: socket.socket
    decoder: BatchDecoder[ToProcess] = field(default_factory=lambda: BatchDecoder(ToProcess))

    def __post_init__(self) -> None:
        self.connection.settimeout(60)
        self.first_id = next(request_ids(self.number))

    def say(self, *messages: FromProcess) -> None:
        self.connection.sendall(encode_batch(messages))

    def hear(self) -> list[ToProcess]:
        """The next messages."""
        messages: list[ToProcess] = []
        while not messages:
            messages = self.decoder.feed(self.connection.recv(1 << 16))
        return messages

    def hears_nothing(self) -> bool:
        """Whether nothing is there to be read."""
        return not select.select([self.connection], [], [], 0)[0]


@dataclass
class Setup:
    """A worker's channel with three processes."""

    channel: ConnectionsChannel
    first: Process
    second: Process
    third: Process
    door: socket.socket

    def take(self) -> list[ToWorker]:
        """What has arrived; everything that was said before is."""
        return self.channel.receive(block=False)


def _comes_in(door: socket.socket, number: int, stack: ExitStack) -> Process:
    ours, theirs = socket.socketpair()
    hand_in(door, number, theirs)
    theirs.close()
    return Process(number, stack.enter_context(ours))


@pytest.fixture
def setup() -> Iterator[Setup]:
    with ExitStack() as stack:
        ours, theirs = socket.socketpair()
        door, their_door = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.enter_context(door)
        channel = ConnectionsChannel(ProcessConnection(theirs), their_door)
        processes = [Process(0, stack.enter_context(ours))]
        processes += [_comes_in(door, number, stack) for number in (1, 2)]
        assert channel.receive(block=False) == []
        yield Setup(channel, *processes, door)
        channel.close()


def _asks(process: Process, more: int = 0) -> Submit:
    return submit(request(process.first_id + more, prompt=3, limit=6))


def _tokens(process: Process, finish: int = 0) -> TokensEvent:
    return TokensEvent(process.first_id, [7], [-0.5], finish)


def test_ids_tell_their_process() -> None:
    for number in (0, 1, 300):
        ids = request_ids(number)
        assert [process_of(next(ids)) for _ in range(3)] == [number] * 3


def test_events_go_to_the_process_that_asked(setup: Setup) -> None:
    setup.first.say(_asks(setup.first))
    setup.third.say(_asks(setup.third))
    assert len(setup.take()) == 2
    setup.channel.send([_tokens(setup.first), _tokens(setup.third)])
    assert setup.first.hear() == [_tokens(setup.first)]
    assert setup.third.hear() == [_tokens(setup.third)]
    assert setup.second.hears_nothing()


def test_answers_go_to_who_asked_in_the_order_of_asking(setup: Setup) -> None:
    setup.second.say(ReadProgress())
    assert setup.take() == [ReadProgress()]
    setup.first.say(ReadProgress())
    assert setup.take() == [ReadProgress()]
    setup.channel.send([Progress(True, 1, 1), Progress(True, 2, 2)])
    assert setup.second.hear() == [Progress(True, 1, 1)]
    assert setup.first.hear() == [Progress(True, 2, 2)]


def test_a_process_that_goes_takes_its_own_requests_with_it(setup: Setup) -> None:
    setup.second.say(_asks(setup.second), _asks(setup.second, 1))
    setup.third.say(_asks(setup.third))
    setup.take()
    setup.channel.send([_tokens(setup.second, Finish.EOS)])
    setup.second.connection.close()
    assert setup.take() == [Cancel(setup.second.first_id + 1)]
    assert not setup.channel.closed
    setup.channel.send([_tokens(setup.second), _tokens(setup.third)])  # one was on its way
    assert setup.third.hear() == [_tokens(setup.third)]


def test_the_worker_ends_with_the_first_process_alone(setup: Setup) -> None:
    setup.second.say(Shutdown())
    assert setup.take() == []
    setup.first.say(Shutdown())
    assert setup.take() == [Shutdown()]
    setup.first.connection.close()
    setup.take()
    assert setup.channel.closed


def test_waiting_ends_when_a_process_comes_in_and_speaks(setup: Setup) -> None:
    setup.third.say(_asks(setup.third))
    assert setup.channel.receive(block=True) == [_asks(setup.third)]
    assert setup.channel.receive(block=True, timeout_ms=1) == []


def test_who_comes_later_hears_what_everybody_knows(setup: Setup) -> None:
    broken = BooksBroken("a page is lost")
    setup.channel.send([broken])
    with ExitStack() as stack:
        fourth = _comes_in(setup.door, 9, stack)
        setup.take()
        assert [process.hear() for process in (setup.first, setup.second, fourth)] == [[broken]] * 3


def test_a_question_is_answered_by_all_others(setup: Setup) -> None:
    setup.second.say(Ask(5, "what", b"?"))
    assert setup.take() == []
    assert setup.first.hear() == setup.third.hear() == [Asked(1, 5, "what", b"?")]
    assert setup.second.hears_nothing()
    setup.first.say(AskedAnswer(1, 5, b"one"))
    setup.take()
    assert setup.second.hears_nothing()
    setup.third.say(AskedAnswer(1, 5, b"three"))
    setup.take()
    (result,) = setup.second.hear()
    assert isinstance(result, AskResult)
    assert (result.ask, sorted(result.answers)) == (5, [b"one", b"three"])


def test_who_goes_owes_no_answer(setup: Setup) -> None:
    setup.second.say(Ask(5, "what", b"?"))
    setup.take()
    setup.first.say(AskedAnswer(1, 5, b"one"))
    setup.third.connection.close()
    setup.take()
    assert setup.second.hear() == [AskResult(5, [b"one"])]


def test_an_asker_that_goes_is_forgotten(setup: Setup) -> None:
    setup.second.say(Ask(5, "what", b"?"), ReadProgress())
    setup.take()
    setup.second.connection.close()
    setup.first.say(AskedAnswer(1, 5, b"one"), ReadProgress())
    setup.third.say(AskedAnswer(1, 5, b"three"))
    setup.take()
    setup.channel.send([Progress(True, 1, 1), Progress(True, 2, 2)])
    assert [m for m in setup.first.hear() if isinstance(m, Progress)] == [Progress(True, 2, 2)]


def test_a_process_that_takes_nothing_holds_up_nobody(setup: Setup) -> None:
    setup.second.say(_asks(setup.second))
    setup.take()
    flood: list[Any] = [_tokens(setup.second)] * 10_000
    for _ in range(20):
        setup.channel.send([*flood, _tokens(setup.third)])
    heard = 0
    while heard < 20:
        heard += len(setup.third.hear())
    assert heard == 20
