"""A driver that starts slowly keeps nobody waiting who has no use for it."""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace

import pytest

from helios.runtime.devices.cuda import early


def test_a_context_that_comes_after_its_end_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    started, released = Event(), Event()

    def release(device: int) -> None:
        assert device == 3
        released.set()

    def retain(ordinal: int) -> tuple[object, int]:
        assert started.wait(10)
        return SimpleNamespace(cuDevicePrimaryCtxRelease=release), ordinal

    monkeypatch.setattr(early, "_retain", retain)
    context = early.EarlyContext(3)
    context.close()
    assert not released.is_set()
    started.set()
    assert released.wait(10)
