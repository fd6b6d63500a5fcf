"""The scheduler: continuous batching over a geometry, with no device and no transport.

`Scheduler` is the door; `Request`, `SchedulerOptions` and the events are what passes through it.
"""

from helios.scheduler.counters import SchedulerCounters
from helios.scheduler.events import Event, Finish, RequestFailed, TokensEmitted
from helios.scheduler.options import SchedulerOptions
from helios.scheduler.planning import PlannedRound
from helios.scheduler.requests import Request
from helios.scheduler.scheduler import Scheduler

__all__ = [
    "Event",
    "Finish",
    "PlannedRound",
    "Request",
    "RequestFailed",
    "Scheduler",
    "SchedulerCounters",
    "SchedulerOptions",
    "TokensEmitted",
]
