"""Looks at the scheduler's books while the worker has nothing else to do.

Books that don't agree are a bug of Helios's. Requests are still answered, so the worker goes on;
it logs what it found with a dump, counts it, and tells the client, whose `/health` says so.
"""

from __future__ import annotations

import logging

from helios.scheduler import Scheduler
from helios.worker.messages import BooksBroken

_log = logging.getLogger(__name__)


class BooksCheck:
    """`violations` counts what was found, anew in each look. The same finding is logged once."""

    def __init__(self) -> None:
        self.violations = 0
        self._known: set[str] = set()

    def look(self, scheduler: Scheduler) -> list[BooksBroken]:
        """What to tell the client: one message where there is a new finding."""
        report = scheduler.inspect()
        self.violations += len(report.violations)
        new = [violation for violation in report.violations if violation not in self._known]
        if not new:
            return []
        self._known.update(new)
        message = f"the scheduler's books don't agree: {'; '.join(new)}"
        _log.error("%s. Report this; the books:\n%s", message, report.dump)
        return [BooksBroken(message)]
