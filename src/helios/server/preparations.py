"""Prompts that wait for a preparation thread, those that one works on, and how long both take."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from enum import Enum, auto
from typing import TypeVar

from helios.worker.histograms import PREPARATION_SECONDS, Histogram, HistogramCounts

Prepared = TypeVar("Prepared")


class _State(Enum):
    QUEUED = auto()
    RUNNING = auto()
    OVER = auto()


class Preparations:
    """Counts what `run` does. A client that goes away leaves the queue at once; a thread that
    works on its prompt is counted until it is through."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting = 0
        self._running = 0
        self._seconds = Histogram(PREPARATION_SECONDS)

    @property
    def waiting(self) -> int:
        """Prompts that no thread has begun with."""
        return self._waiting

    @property
    def running(self) -> int:
        """Prompts that threads work on."""
        return self._running

    def seconds(self) -> HistogramCounts:
        """From the request for a thread to the end of its work."""
        with self._lock:
            return self._seconds.counts()

    async def run(self, threads: Executor, work: Callable[[], Prepared]) -> Prepared:
        """Does the work on one of the threads. Raises what it raises."""
        began = time.monotonic()
        state = _State.QUEUED
        with self._lock:
            self._waiting += 1

        def move(to: _State, *, only_from: _State | None = None) -> None:
            nonlocal state
            with self._lock:
                if only_from in (None, state):
                    self._waiting -= state is _State.QUEUED
                    self._running += (to is _State.RUNNING) - (state is _State.RUNNING)
                    state = to

        def prepare() -> Prepared:
            move(_State.RUNNING)
            try:
                return work()
            finally:
                move(_State.OVER)
                with self._lock:
                    self._seconds.observe(time.monotonic() - began)

        try:
            return await asyncio.get_running_loop().run_in_executor(threads, prepare)
        finally:
            # Who is cancelled before a thread is free has left the queue.
            move(_State.OVER, only_from=_State.QUEUED)
