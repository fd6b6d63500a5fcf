"""The scheduler: continuous batching over a geometry, with no device and no transport.

`Scheduler` is the door; `Request`, `SchedulerOptions` and the events are what passes through it.
Names are imported when they are first used: whoever needs only the events or the options, as the
HTTP process does before it starts its worker, doesn't wait for the rest.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from helios.scheduler.admission import can_reuse
    from helios.scheduler.counters import SchedulerCounters
    from helios.scheduler.events import (
        Event,
        Finish,
        PromptScored,
        RequestFailed,
        TokensEmitted,
    )
    from helios.scheduler.options import SchedulerOptions
    from helios.scheduler.planned import PlannedRound
    from helios.scheduler.requests import Request
    from helios.scheduler.scheduler import Scheduler

__all__ = [
    "Event",
    "Finish",
    "PlannedRound",
    "PromptScored",
    "Request",
    "RequestFailed",
    "Scheduler",
    "SchedulerCounters",
    "SchedulerOptions",
    "TokensEmitted",
    "can_reuse",
]

_MODULES: Final = {
    "Event": "events",
    "Finish": "events",
    "PlannedRound": "planned",
    "PromptScored": "events",
    "Request": "requests",
    "RequestFailed": "events",
    "Scheduler": "scheduler",
    "SchedulerCounters": "counters",
    "SchedulerOptions": "options",
    "TokensEmitted": "events",
    "can_reuse": "admission",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
