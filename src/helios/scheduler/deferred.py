"""What follows from completed rounds that nobody waits for: publishing pages and snapshots, giving
back what an ended request holds.

It is done in the order of fences: where nobody waits, or before anything that would go otherwise
if it weren't done yet. What is free is free whatever is deferred; whoever needs more pages or rows
than are free, or looks at what is published, at slots or at the queue, has it done first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from helios.scheduler.requests import Ending, Resident


class Deferred:
    """Acts that are still to be done, each for a resident."""

    def __init__(self) -> None:
        self._acts: deque[tuple[Resident, Callable[[], None]]] = deque()

    def __len__(self) -> int:
        return len(self._acts)

    def __contains__(self, resident: Resident) -> bool:
        return any(resident is one for one, _ in self._acts)

    def add(self, resident: Resident, act: Callable[[], None]) -> None:
        """Puts an act off, unless the resident was preempted: then its request waits for it, and
        would be in the queue again."""
        self._acts.append((resident, act))
        if resident.ending is Ending.PREEMPTED:
            self.run()

    def run(self) -> None:
        """Does everything that was put off."""
        while self._acts:
            _, act = self._acts.popleft()
            act()
