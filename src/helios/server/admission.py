"""Admission permits: how many requests the server holds at once.

A permit covers preparation, queueing, generation and the delivery of the last byte, so it bounds
the output that slow readers can make the process keep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from helios.server.failures import ApiError
from helios.server.shared_permits import SharedPermits


class Permit:
    """A request's leave to exist in the server."""

    def __init__(self, returned: Callable[[], None]) -> None:
        self._returned = returned
        self._held = True

    def give_back(self) -> None:
        """Ends it; nothing happens if it has ended."""
        if self._held:
            self._held = False
            self._returned()


class Admission:
    """Counts permits; with `shared`, those of other processes too, and `held` are this one's. Only
    touched by the event loop's thread."""

    def __init__(self, capacity: int, shared: SharedPermits | None = None) -> None:
        self.capacity = capacity
        self._shared = shared
        self.held = 0
        self.refused = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def permit(self) -> Iterator[Permit]:
        """Holds a permit, until the block ends at the latest. Raises ApiError 429 when all are
        taken."""
        if self.held >= self.capacity or not self._take():
            self.refused += 1
            raise ApiError(
                429,
                f"all {self.capacity} places are taken. Try again later",
                code="queue_full",
                retry_after_s=1,
            )
        self.held += 1
        self._idle.clear()
        permit = Permit(self._returned)
        try:
            yield permit
        finally:
            permit.give_back()

    def _returned(self) -> None:
        self.held -= 1
        if self._shared is not None:
            self._shared.give()
        if not self.held:
            self._idle.set()

    def _take(self) -> bool:
        """Takes a permit from all processes, where there are several."""
        return self._shared is None or self._shared.take(self.capacity)

    async def idle(self) -> None:
        """Waits until no permit is held."""
        await self._idle.wait()
