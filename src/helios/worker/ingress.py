"""Where requests are between the client's process and the scheduler's queue.

`Ingress` is the worker's: requests that have arrived while the queue is full. `IngressRoom` is the
client's: it sends no more than the ingress has room for, and holds the others back until the
worker says that it has taken some (`Taken`). So ingress and queue hold no more than the queue's
capacity each, however many clients come at once. A sibling goes with its leader and takes no place
of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from helios.worker.messages import Submit, Taken


class _Groups:
    """Requests with their siblings, in order of arrival."""

    def __init__(self) -> None:
        self._by_leader: dict[int, dict[int, Submit]] = {}

    def __len__(self) -> int:
        return len(self._by_leader)

    def add(self, request: Submit) -> None:
        """Puts a request behind all others."""
        self._by_leader[request.request_id] = {request.request_id: request}

    def join(self, request: Submit) -> bool:
        """Puts a sibling to its leader, if that is here."""
        group = None if request.sibling_of is None else self._by_leader.get(request.sibling_of)
        if group is None:
            return False
        group[request.request_id] = request
        return True

    def pop(self) -> tuple[int, list[Submit]]:
        """Takes out those that came first; their leader's id, and they."""
        leader = next(iter(self._by_leader))
        return leader, list(self._by_leader.pop(leader).values())

    def remove(self, request_id: int) -> int | None:
        """Takes a request out; its leader's id, or None where it isn't here."""
        for leader, group in self._by_leader.items():
            if group.pop(request_id, None) is not None:
                if not group:
                    del self._by_leader[leader]
                return leader
        return None

    def clear(self) -> list[Submit]:
        """Takes everybody out."""
        every = [request for group in self._by_leader.values() for request in group.values()]
        self._by_leader.clear()
        return every


class Ingress:
    """Holds at most `capacity` requests, siblings not counted."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._groups = _Groups()
        self._taken: list[Taken] = []

    def __len__(self) -> int:
        return len(self._groups)

    def join(self, request: Submit) -> bool:
        """Puts a sibling to its leader, if that is here."""
        return self._groups.join(request)

    def put(self, request: Submit) -> bool:
        """Takes a request in; False where there is no room, which a client that heeds `Taken`
        never meets."""
        if len(self._groups) >= self.capacity:
            self._taken.append(Taken(request.request_id))
            return False
        self._groups.add(request)
        return True

    def pop(self) -> list[Submit]:
        """The request that came first, and its siblings."""
        leader, requests = self._groups.pop()
        self._taken.append(Taken(leader))
        return requests

    def remove(self, request_id: int) -> bool:
        """Takes a request out; whether it was here."""
        before = len(self._groups)
        leader = self._groups.remove(request_id)
        if leader is not None and len(self._groups) < before:
            self._taken.append(Taken(leader))
        return leader is not None

    def clear(self) -> list[Submit]:
        """Takes everybody out."""
        every = self._groups.clear()
        self._taken += [Taken(request.request_id) for request in every]
        return every

    def news(self, *, sending: bool) -> list[Taken]:
        """What the client is to hear now: with the next batch, or at once where it may have to
        wait for it."""
        if not sending and 2 * len(self._taken) < self.capacity:
            return []
        news, self._taken = self._taken, []
        return news


class IngressRoom:
    """The client's view of the ingress; `send` sends a request to it. Nothing is sent before
    `open` says how many it takes."""

    def __init__(self, send: Callable[[Submit], None]) -> None:
        self._send = send
        self._capacity = 0
        self._there: set[int] = set()
        self._held = _Groups()

    def __len__(self) -> int:
        """Requests that are held back."""
        return len(self._held)

    def open(self, capacity: int) -> None:
        """The worker takes requests from now on."""
        self._capacity = capacity
        self._fill()

    def submit(self, request: Submit) -> None:
        """Sends a request as soon as there is room, a sibling with its leader."""
        if self._held.join(request):
            return
        if request.sibling_of is not None:
            self._send(request)
            return
        self._held.add(request)
        self._fill()

    def taken(self, request_id: int) -> None:
        """The worker has taken a request out of its ingress."""
        self._there.discard(request_id)
        self._fill()

    def withdraw(self, request_id: int) -> bool:
        """Forgets a request; False where it has been sent already."""
        return self._held.remove(request_id) is not None

    def _fill(self) -> None:
        while len(self._held) and len(self._there) < self._capacity:
            leader, requests = self._held.pop()
            self._there.add(leader)
            for request in requests:
                self._send(request)
