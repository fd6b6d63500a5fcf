"""A signal that ends a command, as an exception that every clean-up runs on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """A signal that ends the command. No exception that the argument parser knows, so that every
    clean-up runs and `main` decides the exit status."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _interrupt(number: int, frame: FrameType | None) -> None:
    # A second signal must not cut the clean-up short.
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)


@contextmanager
def interruptible() -> Iterator[None]:
    """Within the block the first signal raises `Interrupted`."""
    before = {number: signal.signal(number, _interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
