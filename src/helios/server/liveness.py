"""Whether the device moves while there is work: what `/health` knows besides errors.

The worker is asked every few seconds how far the device has come. It answers while it waits for a
round, too, and a device that can counts the launches of a running program, so a long round isn't
taken for a stall. A worker that doesn't answer is stuck itself, which comes to the same.
`serving` runs `follow`; `lifecycle` asks the watch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from helios.errors import HeliosError
from helios.worker.messages import Progress, WorkerReady

_INTERVAL_SECONDS: Final = 5.0
# Asked this often within the time that is allowed without progress, so that it is known soon after.
_LOOKS: Final = 4

Pause = Callable[[float], Awaitable[None]]


class AskedWorker(Protocol):
    """Who can be asked; `helios.worker.client.ModelClient` is one."""

    async def ready(self) -> WorkerReady:
        """Waits for start-up. Raises HeliosError if it fails."""

    async def progress(self) -> Progress:
        """How far the device has come; no answer from a worker that is stuck. Raises HeliosError
        once it is dead."""


class DeviceWatch:
    """Remembers when the device last moved. `timeout_s` without progress, with work to do, or
    without an answer is a stall; whatever moves again ends it."""

    def __init__(self, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.timeout_s = timeout_s
        self._clock = clock
        self._last = Progress(working=False, launches=0, rounds=0)
        self._moved_at = 0.0
        self._asked_at: float | None = None

    def asked(self) -> None:
        """The worker has been asked now."""
        self._asked_at = self._clock()

    def answered(self, progress: Progress) -> None:
        """The worker has answered now."""
        self._asked_at = None
        # Work that has just come hasn't waited for anything yet.
        if progress != self._last or not progress.working:
            self._moved_at = self._clock()
        self._last = progress

    @property
    def stalled(self) -> str:
        """What doesn't move, for how long; empty while all is well."""
        now = self._clock()
        if self._asked_at is not None and now - self._asked_at > self.timeout_s:
            return f"the model's worker hasn't answered for {now - self._asked_at:.0f} s"
        if self._last.working and now - self._moved_at > self.timeout_s:
            return (
                f"the device hasn't been seen to move for {now - self._moved_at:.0f} s, and there"
                " was work for it when the model's worker last answered"
            )
        return ""


async def follow(worker: AskedWorker, watch: DeviceWatch, pause: Pause = asyncio.sleep) -> None:
    """Asks the worker from its start-up to its end. `pause` waits between an answer and the next
    question."""
    interval_s = min(_INTERVAL_SECONDS, watch.timeout_s / _LOOKS)
    try:
        await worker.ready()
        while True:
            watch.asked()
            watch.answered(await worker.progress())
            await pause(interval_s)
    except HeliosError:
        return  # a worker that failed says so itself
