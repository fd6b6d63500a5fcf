"""An attempt's time, by a clock that tests turn, and the hosts that it may connect to."""

from __future__ import annotations

import threading

import httpcore
import pytest

from helios.core.addresses import Endpoint
from helios.core.pinned_network import PinnedNetwork
from tests.core.mirror_server import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def network(clock: Clock) -> PinnedNetwork:
    """In an attempt that may be 10 s behind 100 bytes a second."""
    network = PinnedNetwork(clock=clock)
    network.begin(10.0, 100)
    return network


def test_a_step_gets_what_is_left_of_the_grace(network: PinnedNetwork, clock: Clock) -> None:
    assert network.left_s(None) == 10.0
    assert network.left_s(5.0) == 5.0
    assert not network.is_late()
    clock.now += 7
    assert network.left_s(5.0) == 3.0
    clock.now += 3
    with pytest.raises(httpcore.ReadTimeout):
        network.left_s(5.0)
    assert network.is_late()
    network.begin(10.0, 100)
    assert network.left_s(None) == 10.0


def test_content_earns_time(network: PinnedNetwork, clock: Clock) -> None:
    for _ in range(1000):  # exactly the rate, for as long as it takes
        clock.now += 9
        network.advance(900)
        assert network.left_s(None) == 10.0
    clock.now += 9
    network.advance(100)
    assert network.left_s(None) == 2.0
    clock.now += 2
    assert network.is_late()
    with pytest.raises(httpcore.ReadTimeout):
        network.left_s(None)


def test_what_comes_early_is_not_saved_up(network: PinnedNetwork, clock: Clock) -> None:
    network.advance(1_000_000)
    assert network.left_s(None) == 10.0
    clock.now += 10
    assert network.is_late()


def test_drips_do_not_hold_an_attempt_open(network: PinnedNetwork, clock: Clock) -> None:
    steps = 0
    while not network.is_late():
        clock.now += 1
        network.advance(1)
        steps += 1
    assert steps == 11


def test_an_ended_attempt_takes_no_step(clock: Clock) -> None:
    ended = threading.Event()
    network = PinnedNetwork(ended, clock)
    network.begin(10.0, 100)
    assert network.left_s(1.0) == 1.0
    ended.set()
    with pytest.raises(httpcore.ReadTimeout):
        network.left_s(1.0)


def test_only_approved_hosts_are_connected_to(network: PinnedNetwork) -> None:
    connected: list[str] = []

    class Sockets(httpcore.MockBackend):
        def connect_tcp(self, host: str, *given: object, **named: object) -> httpcore.NetworkStream:
            connected.append(host)
            return httpcore.MockStream([])

    network._sockets = Sockets([])  # type: ignore[assignment]
    network.approve("a.test", 80, Endpoint(("192.0.2.1",), private=False, barred=False))
    for host, port in (("a.test", 81), ("b.test", 80), ("192.0.2.1", 80)):
        with pytest.raises(httpcore.ConnectError):
            network.connect_tcp(host, port)
    assert connected == []
    network.connect_tcp("a.test", 80)
    assert connected == ["192.0.2.1"]
    network.begin(10.0, 100)  # another attempt judges anew
    with pytest.raises(httpcore.ConnectError):
        network.connect_tcp("a.test", 80)
