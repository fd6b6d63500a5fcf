"""Requests that run now, by the names that clients know them by, so that they can be aborted.

A request has two names: its `x-request-id`, from its permit on, and its answer's id. The first may
be a client's choice, and so name several requests. Only touched by the event loop's thread;
`abort` knows this process's requests alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from helios.worker.messages import Finish, Submit, TokensEvent
from helios.worker.recipient import Recipient


class AskedClient(Protocol):
    """What is asked of the worker's client for one request; see `lifecycle.WorkerClient`."""

    def begin(self, request: Submit, recipient: Recipient) -> None:
        """Sends a request."""

    def leave(self, request_id: int) -> None:
        """Its recipient hears no more."""


class CancellingClient(AskedClient, Protocol):
    """One that can end a request for its recipient, too."""

    def cancel(self, request_id: int) -> None:
        """Ends it; its recipient hears so."""


class RunningRequest:
    """A request from its permit to its answer's end, and the client through which all its choices
    are asked. `aborted` says that somebody asked for its end, which turns its choices' `cancelled`
    into an answer's finish."""

    def __init__(self, client: CancellingClient) -> None:
        self.aborted = False
        self._client = client
        self._begun: set[int] = set()
        self._over = False

    def begin(self, request: Submit, recipient: Recipient) -> None:
        """As the client's; a request that has been aborted meanwhile ends without being asked."""
        if not self.aborted:
            self._client.begin(request, recipient)
            self._begun.add(request.request_id)
        elif recipient.take(TokensEvent(request.request_id, [], [], Finish.CANCELLED)):
            asyncio.get_running_loop().call_soon(recipient.deliver)

    def leave(self, request_id: int) -> None:
        """As the client's. Nobody leaves a choice before all have ended, or the client has gone."""
        self._over = True
        self._begun.discard(request_id)
        self._client.leave(request_id)

    def abort(self) -> bool:
        """Ends all choices where they are; whether there was something to end. Idempotent."""
        if self._over:
            return False
        self.aborted = True
        for request_id in self._begun:
            self._client.cancel(request_id)
        return True


class RunningRequests:
    """Those of one HTTP process."""

    def __init__(self) -> None:
        self._named: dict[str, list[RunningRequest]] = {}

    @contextmanager
    def named(self, name: str, request: RunningRequest) -> Iterator[None]:
        """The request has this name, too, until the block ends."""
        self._named.setdefault(name, []).append(request)
        try:
            yield
        finally:
            same = self._named[name]
            same.remove(request)
            if not same:
                del self._named[name]

    def abort(self, name: str) -> bool:
        """Ends every request of this name that isn't over; whether there is one."""
        ended = [request.abort() for request in self._named.get(name, ())]
        return any(ended)
