"""The requests whose last event is still to come, by id. Each is retired exactly once."""

from __future__ import annotations

from collections.abc import Iterator

from helios.errors import AdmissionError
from helios.scheduler.counters import SchedulerCounters
from helios.scheduler.events import Finish
from helios.scheduler.requests import Progress, Request


class LiveRequests:
    """Those that wait or go on; a request may end before its resident has given everything back."""

    def __init__(self, counters: SchedulerCounters) -> None:
        self._counters = counters
        self._by_id: dict[int, Progress] = {}
        self._siblings: set[int] = set()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Progress]:
        return iter(list(self._by_id.values()))

    @property
    def leaders(self) -> int:
        """How many there are, without siblings that came while their leader was live."""
        return len(self._by_id) - len(self._siblings)

    def check(self, request: Request, limit: int) -> bool:
        """Whether a new request takes a place of its own among the `limit` that there are; a
        sibling of a live request takes none. Raises AdmissionError where none is left."""
        where = f"request {request.request_id}"
        if request.request_id in self._by_id:
            raise AdmissionError(
                "a live request has this id", where=where, remedy="Count the ids upwards"
            )
        if request.sibling_of in self._by_id:
            return False
        if self.leaders >= limit:
            raise AdmissionError(
                f"{self.leaders} requests run or wait already",
                where=where,
                remedy="Try again later",
            )
        return True

    def add(self, progress: Progress) -> None:
        """A request has been accepted; no live one may have its id."""
        request = progress.request
        assert request.request_id not in self._by_id, "an id is live twice"
        if request.sibling_of in self._by_id:
            progress.rides = True
            self._siblings.add(request.request_id)
        self._by_id[request.request_id] = progress
        self._counters.submitted += 1
        self._counters.prompt_tokens += len(progress.request.prompt)

    def find(self, request_id: int) -> Progress | None:
        """The live request of that id."""
        return self._by_id.get(request_id)

    def holds(self, progress: Progress) -> bool:
        """Whether the request's last event is still to come."""
        return self._by_id.get(progress.request.request_id) is progress

    def retire(self, progress: Progress, finish: Finish) -> None:
        """The request has its last event."""
        del self._by_id[progress.request.request_id]
        self._siblings.discard(progress.request.request_id)
        self._counters.finished[finish] += 1
