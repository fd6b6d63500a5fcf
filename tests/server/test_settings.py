"""The server's own settings: said explicitly, else the core's, else the default."""

from __future__ import annotations

import socket
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from helios.server.listeners import listen
from helios.server.loading import Loading, _served_model
from helios.server.server import ServerOptions
from helios.worker.options import WorkerOptions
from tests.server.scripted import FRONTEND, READY, ScriptedClient, says


@pytest.mark.clause("BOOT-9")
@pytest.mark.parametrize(
    ("explicit", "recommended", "processes", "workers"),
    [
        (None, None, 1, 2),
        (None, 5, 1, 5),
        (3, 5, 1, 3),
        (3, None, 1, 3),
        (6, 5, 2, 3),
        (1, 5, 2, 1),
    ],
)
def test_preparation_slots_are_what_was_said_else_the_cores(
    explicit: int | None, recommended: int | None, processes: int, workers: int
) -> None:
    """Several HTTP processes share them."""
    defaults = replace(FRONTEND.contract.defaults, frontend_workers=recommended)
    frontend = replace(FRONTEND, contract=replace(FRONTEND.contract, defaults=defaults))
    core: Any = SimpleNamespace(acceptance=SimpleNamespace(namespace="tests"), digest="d" * 16)
    options = ServerOptions(
        "", 0, WorkerOptions(core="", accept=""), explicit, http_workers=processes
    )
    loading = Loading(core, options, None, 1)
    model = _served_model(frontend, ScriptedClient(says("a")), READY, loading)
    assert model.preparation._max_workers == workers
    assert model.admission.capacity == READY.queue_capacity + READY.request_slots
    model.preparation.shutdown()


def test_connections_send_what_they_have_at_once() -> None:
    """Else the end of each response waits for the client's delayed acknowledgement."""
    with (
        listen("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
