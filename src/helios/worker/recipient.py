"""Who hears a request's events in the HTTP process: called back as they arrive, with no queue and
no task in between, since a busy server hands on a token some thousand times a second.

A client takes a batch of messages apart, gives each event to its recipient (`take`), and when the
batch is through lets each that wants it work (`deliver`): so what came together is answered
together. All of it happens on the event loop's thread; nothing here may raise or wait.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from helios.errors import HeliosError
from helios.worker.request_events import RequestEvent as RequestEvent
from helios.worker.request_events import ends as ends


class Recipient(Protocol):
    """Hears the events of a request, or of several."""

    def take(self, event: RequestEvent) -> bool:
        """Keeps an event; True asks for one `deliver` after the batch."""

    def deliver(self) -> None:
        """Works on what has been kept."""

    def fail(self, failure: HeliosError) -> None:
        """No more events will come: the worker is dead."""


class QueueRecipient:
    """Keeps the events of one request in a queue, for whoever would rather wait for them."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[RequestEvent | HeliosError] = asyncio.Queue()

    def take(self, event: RequestEvent) -> bool:
        """As `Recipient.take`."""
        self._events.put_nowait(event)
        return False

    def deliver(self) -> None:
        """Nothing is left to do."""

    def fail(self, failure: HeliosError) -> None:
        """As `Recipient.fail`."""
        self._events.put_nowait(failure)

    async def next(self) -> RequestEvent:
        """The next event. Raises the failure that `fail` was told of."""
        event = await self._events.get()
        if isinstance(event, HeliosError):
            raise event
        return event
