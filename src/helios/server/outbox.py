"""What streams have to send, until the events that came together have all been worked on.

Hundreds of streams get a token each at a time. Their texts are made first and sent then, one
after the other: a system call takes less time after one of its kind than after other work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary


class Outbox:
    """Of one event loop, on whose thread it is used."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sending: list[Callable[[], None]] = []

    def add(self, send: Callable[[], None]) -> None:
        """Calls `send`, which doesn't raise, once what runs now has come to its end."""
        if not self._sending:
            self._loop.call_soon(self._send_all)
        self._sending.append(send)

    def _send_all(self) -> None:
        sending, self._sending = self._sending, []
        for send in sending:
            send()


_OUTBOXES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Outbox]] = WeakKeyDictionary()


def outbox() -> Outbox:
    """The running loop's."""
    loop = asyncio.get_running_loop()
    found = _OUTBOXES.get(loop)
    if found is None:
        found = _OUTBOXES[loop] = Outbox(loop)
    return found
