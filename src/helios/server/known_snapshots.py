"""What each HTTP process knows of all of them, so that what they show together never goes down.

Any process may take a scrape, and others may be busy or gone: were their counts left out, counters
would fall, and Prometheus would take the next rise for new events. So everybody keeps the latest
snapshot of everybody, the dead included, and a scrape passes on what one knows and the others
don't, in both directions.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence

import msgspec

from helios.server.http_snapshot import HttpSnapshot


class NumberedSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """A process's snapshot; of two the one with the higher number is later."""

    process: str
    number: int
    snapshot: HttpSnapshot


class KnownSnapshots:
    """The latest snapshot of every process that this one has heard of, and its own."""

    def __init__(self) -> None:
        # Process ids are used again, and so are places.
        self.process = uuid.uuid4().hex
        self._taken = 0
        self._latest: dict[str, NumberedSnapshot] = {}

    def take(self, snapshot: HttpSnapshot) -> None:
        """This process's own, as it is now."""
        self._taken += 1
        self._latest[self.process] = NumberedSnapshot(self.process, self._taken, snapshot)

    def learn(self, others: Iterable[NumberedSnapshot]) -> None:
        """Keeps what is later than what is known."""
        for one in others:
            known = self._latest.get(one.process)
            if known is None or known.number < one.number:
                self._latest[one.process] = one

    def all(self) -> list[NumberedSnapshot]:
        """Everything that is known."""
        return list(self._latest.values())

    def later_than(self, others: Sequence[NumberedSnapshot]) -> list[NumberedSnapshot]:
        """What somebody who knows `others` doesn't."""
        theirs = {one.process: one.number for one in others}
        return [one for one in self._latest.values() if one.number > theirs.get(one.process, 0)]

    def total(self, here: Collection[str]) -> HttpSnapshot:
        """All processes together. Of those that aren't `here`, gone or silent, only what they have
        counted."""
        parts = [
            one.snapshot if one.process in here else one.snapshot.counted()
            for one in self._latest.values()
        ]
        whole, *others = parts
        for part in others:
            whole = whole.merge(part)
        return whole
