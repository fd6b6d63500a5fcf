"""SIGTERM and SIGINT of a server's first process, from when its core is open to its end.

The server may be asked to end while the model and what HTTP needs are still being loaded: such a
signal waits for whoever serves. The handlers stay until everything has ended, so
that none of these signals ends the process by itself.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Final, Self

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class EndSignals:
    """A block, in the main thread, at whose end the handlers are what they were before `take`."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._waiting = 0
        self._obey: Callable[[], object] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def take(self) -> None:
        """From here on signals are kept for `obeyed_by`."""
        self._before = {number: signal.signal(number, self._receive) for number in _SIGNALS}

    @contextmanager
    def obeyed_by(self, stop: Callable[[], object]) -> Iterator[None]:
        """In the block `stop` is called for each signal, wherever the main thread is, and once for
        each that has waited. Signals that come after it change nothing any more."""
        self._obey = stop
        for _ in range(self._waiting):
            stop()
        try:
            yield
        finally:
            self._obey = None

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._obey is None:
            self._waiting += 1
        else:
            self._obey()
