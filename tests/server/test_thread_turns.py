"""Threads that compute don't keep the interpreter for long in processes that serve."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helios.thread_turns import TURN_S
from tests.server.stepped import stepped_server


@pytest.fixture
def turns() -> Iterator[None]:
    """The test's own process is left as it was."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5 * TURN_S)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("turns")
def test_an_http_process_has_short_turns(core_folder: Path) -> None:
    """Once it serves: preparations run beside its event loop from then on."""
    with stepped_server(core_folder) as server:
        server.device.run_freely()
        assert server.http.get("/ready").status_code == 200
        assert sys.getswitchinterval() == pytest.approx(TURN_S)
