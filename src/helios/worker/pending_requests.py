"""The requests of one HTTP process that the worker hasn't ended, and who hears of them.

Part of `client`, which posts messages and hears events. Requests go to the worker by way of the
ingress's room, and are cancelled wherever they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from helios.dataclass import dataclass
from helios.errors import ExecutionError, HeliosError
from helios.worker.event_budget import event_budget
from helios.worker.ingress import IngressRoom
from helios.worker.messages import Cancel, Submit, TokensEvent, cancelled
from helios.worker.recipient import Recipient, RequestEvent


@dataclass(slots=True)
class _Pending:
    """A request that hasn't ended. The worker may send `events_left` more."""

    recipient: Recipient
    events_left: int


class PendingRequests:
    """Only touched by the event loop's thread; `post` sends the worker a message."""

    def __init__(self, post: Callable[[Submit | Cancel], None]) -> None:
        self._post = post
        self._room = IngressRoom(post)
        self._pending: dict[int, _Pending] = {}
        self._event_capacity = 0
        self._ending = False

    def __len__(self) -> int:
        """Requests that haven't ended."""
        return len(self._pending)

    def open(self, places: int, event_capacity: int) -> None:
        """The worker takes requests from now on: so many before it says that it has room again."""
        self._event_capacity = event_capacity
        self._room.open(places)

    def begin(self, request: Submit, recipient: Recipient) -> None:
        """Sends a request, or ends it at once after `cancel_all`."""
        request_id = request.request_id
        if self._ending:
            if recipient.take(cancelled(request_id)):
                asyncio.get_running_loop().call_soon(recipient.deliver)
            return
        assert request_id not in self._pending, "a pending request has this id"
        budget = event_budget(request, self._event_capacity)
        self._pending[request_id] = _Pending(recipient, budget)
        self._room.submit(request)

    def leave(self, request_id: int) -> None:
        """Nobody hears the request any more: it is cancelled, unless it has ended."""
        if self._pending.pop(request_id, None) is not None:
            self._cancel(request_id)

    def cancel(self, request_id: int) -> None:
        """Ends a request; its recipient hears so, from the worker if that has it."""
        if self._cancel(request_id):
            return
        pending = self._pending.pop(request_id, None)
        if pending is not None and pending.recipient.take(cancelled(request_id)):
            pending.recipient.deliver()

    def cancel_all(self) -> None:
        """Ends every request, and every one that still comes; all recipients hear it at once."""
        self._ending = True
        pending, self._pending = self._pending, {}
        for request_id, one in pending.items():
            self._cancel(request_id)
            one.recipient.take(cancelled(request_id))
        for one in pending.values():
            one.recipient.deliver()

    def _cancel(self, request_id: int) -> bool:
        """Cancels a request where it is; whether that is the worker."""
        if self._room.withdraw(request_id):
            return False
        self._post(Cancel(request_id))
        return True

    def taken(self, request_id: int) -> None:
        """The worker has taken a request out of its ingress."""
        self._room.taken(request_id)

    def recipient(self, event: RequestEvent) -> Recipient | None:
        """Who hears an event; None if its reader has gone. Raises ExecutionError for more events
        than there can be."""
        pending = self._pending.get(event.request_id)
        if pending is None:
            return None
        pending.events_left -= 1
        if pending.events_left < 0:
            raise ExecutionError(
                f"request {event.request_id} had more events than its output can have",
                where="model worker",
                remedy="Run both processes from the same installation",
            )
        if type(event) is not TokensEvent or event.finish:
            del self._pending[event.request_id]
        return pending.recipient

    def fail(self, failure: HeliosError) -> None:
        """The worker is dead, and every recipient hears so."""
        pending, self._pending = self._pending, {}
        for one in pending.values():
            one.recipient.fail(failure)
