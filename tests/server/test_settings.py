"""The server's own settings: said explicitly, else the core's, else the default."""

from __future__ import annotations

import socket
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from helios.server.server import _listen
from helios.server.serving import _served_model
from tests.server.scripted import FRONTEND, READY, ScriptedClient, says


@pytest.mark.clause("BOOT-9")
@pytest.mark.parametrize(
    ("explicit", "recommended", "workers"), [(None, None, 2), (None, 5, 5), (3, 5, 3), (3, None, 3)]
)
def test_preparation_slots_are_what_was_said_else_the_cores(
    explicit: int | None, recommended: int | None, workers: int
) -> None:
    defaults = replace(FRONTEND.contract.defaults, frontend_workers=recommended)
    frontend = replace(FRONTEND, contract=replace(FRONTEND.contract, defaults=defaults))
    core: Any = SimpleNamespace(acceptance=SimpleNamespace(namespace="tests"), digest="d" * 16)
    model = _served_model(core, frontend, ScriptedClient(says("a")), READY, explicit)
    assert model.preparation._max_workers == workers
    assert model.admission.capacity == READY.queue_capacity + READY.request_slots
    model.preparation.shutdown()


def test_connections_send_what_they_have_at_once() -> None:
    """Else the end of each response waits for the client's delayed acknowledgement."""
    with (
        _listen("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
