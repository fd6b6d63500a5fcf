"""Channels: order, wakeups, partial batches, slow and vanishing peers."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.errors import ExecutionError
from helios.worker.channel import BatchDecoder, InProcessChannel, SocketChannel, encode_batch
from helios.worker.messages import (
    Cancel,
    FailedEvent,
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
    WorkerReady,
)

TO_WORKER: list[ToWorker] = [
    Submit(7, [1, 2, 3], 16, Sampling(0.5, 40, 0.9, 0.0, 2**64 - 1), [2]),
    Cancel(7),
    ReadStatistics(),
    Shutdown(),
]
FROM_WORKER: list[FromWorker] = [
    WorkerReady("cpu/avx2", 32, 0, 100, 1 << 20, 32, 2048, 256, {"open": 1.5}),
    WorkerFailed("CoreError", "no such folder"),
    TokensEvent(7, [5], [-0.25], 0),
    RejectedEvent(8, "too long"),
    FailedEvent(9, "broke"),
    Statistics({"a": 1}, {"b": 2.0}, {"decode": 3}, {"decode": 4}, {"eos": 5}),
]


@pytest.fixture
def sockets() -> Iterator[tuple[SocketChannel, socket.socket]]:
    ours, theirs = socket.socketpair()
    channel = SocketChannel(theirs)
    with ours:
        yield channel, ours
    channel.close()


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_batches_survive_any_cut(cuts: list[int]) -> None:
    stream = encode_batch(TO_WORKER) + encode_batch([]) + encode_batch(TO_WORKER[:2])
    decoder: BatchDecoder[ToWorker] = BatchDecoder(ToWorker)
    got: list[ToWorker] = []
    for cut in cuts:
        got += decoder.feed(stream[:cut])
        stream = stream[cut:]
    got += decoder.feed(stream)
    assert got == TO_WORKER + TO_WORKER[:2]


def test_messages_of_the_other_direction_come_through() -> None:
    decoder: BatchDecoder[FromWorker] = BatchDecoder(FromWorker)
    assert decoder.feed(encode_batch(FROM_WORKER)) == FROM_WORKER


@pytest.mark.parametrize(
    "garbage",
    [b"\xff\xff\xff\xff", b"\x02\x00\x00\x00\xc1\xc1", encode_batch([WorkerFailed("a", "b")])],
)
def test_garbage_is_refused(garbage: bytes) -> None:
    decoder: BatchDecoder[ToWorker] = BatchDecoder(ToWorker)
    with pytest.raises(ExecutionError, match="no batch"):
        decoder.feed(garbage)


def test_receive_without_block_returns_at_once(
    sockets: tuple[SocketChannel, socket.socket],
) -> None:
    channel, ours = sockets
    assert channel.receive(block=False) == []
    ours.sendall(encode_batch(TO_WORKER)[:10])
    assert channel.receive(block=False) == []
    ours.sendall(encode_batch(TO_WORKER)[10:])
    assert channel.receive(block=False) == TO_WORKER


def test_receive_blocks_until_something_comes(
    sockets: tuple[SocketChannel, socket.socket],
) -> None:
    channel, ours = sockets
    got: list[ToWorker] = []
    thread = threading.Thread(target=lambda: got.extend(channel.receive(block=True)))
    thread.start()
    ours.sendall(encode_batch([Cancel(3)]))
    thread.join()
    assert got == [Cancel(3)]


def test_a_slow_reader_never_blocks_and_loses_nothing(
    sockets: tuple[SocketChannel, socket.socket],
) -> None:
    channel, ours = sockets
    events: list[FromWorker] = [TokensEvent(i, [1] * 1000, [0.0] * 1000, 0) for i in range(50)]
    for event in events:
        channel.send([event])
    readable = select.poll()
    readable.register(ours, select.POLLIN)
    decoder: BatchDecoder[FromWorker] = BatchDecoder(FromWorker)
    got: list[FromWorker] = []
    while len(got) < len(events):
        assert readable.poll(0), "nothing is on its way"
        got += decoder.feed(ours.recv(1 << 16))
        channel.receive(block=False)
    assert got == events


def test_an_idle_worker_goes_on_sending_what_is_unsent(
    sockets: tuple[SocketChannel, socket.socket],
) -> None:
    channel, ours = sockets
    big = TokensEvent(1, [7] * 400_000, [0.0] * 400_000, 0)
    channel.send([big])
    received: list[ToWorker] = []
    thread = threading.Thread(target=lambda: received.extend(channel.receive(block=True)))
    thread.start()
    decoder: BatchDecoder[FromWorker] = BatchDecoder(FromWorker)
    got: list[FromWorker] = []
    while not got:
        got += decoder.feed(ours.recv(1 << 16))
    ours.sendall(encode_batch([Shutdown()]))
    thread.join()
    assert got == [big]
    assert received == [Shutdown()]


def test_a_vanished_client_closes_the_channel(
    sockets: tuple[SocketChannel, socket.socket],
) -> None:
    channel, ours = sockets
    ours.sendall(encode_batch([Cancel(1)]))
    ours.close()
    assert channel.receive(block=True) == [Cancel(1)]
    assert channel.closed
    assert channel.receive(block=True) == []
    channel.send(FROM_WORKER)


def test_closing_delivers_what_is_unsent() -> None:
    ours, theirs = socket.socketpair()
    channel = SocketChannel(theirs)
    big = TokensEvent(1, [7] * 400_000, [0.0] * 400_000, 1)
    channel.send([big])
    decoder: BatchDecoder[FromWorker] = BatchDecoder(FromWorker)
    got: list[FromWorker] = []

    def read() -> None:
        while received := ours.recv(1 << 16):
            got.extend(decoder.feed(received))

    thread = threading.Thread(target=read)
    thread.start()
    channel.close()
    thread.join()
    ours.close()
    assert got == [big]


def test_the_in_process_channel_keeps_order_and_wakes_the_worker() -> None:
    delivered: list[FromWorker] = []

    def deliver(messages: Sequence[FromWorker]) -> None:
        delivered.extend(messages)

    channel = InProcessChannel(deliver)
    assert channel.receive(block=False) == []
    got: list[ToWorker] = []
    thread = threading.Thread(target=lambda: got.extend(channel.receive(block=True)))
    thread.start()
    channel.post(TO_WORKER)
    thread.join()
    assert got == TO_WORKER
    channel.send(FROM_WORKER)
    assert delivered == FROM_WORKER
    channel.close()
    assert channel.closed
    assert channel.receive(block=True) == []
    channel.send(FROM_WORKER)
    assert delivered == FROM_WORKER
