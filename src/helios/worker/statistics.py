"""The worker's counts by operation and the `Statistics` message made of them and the scheduler's.

Metric names are the message's keys, without prefix; the HTTP process renders them.
"""

from __future__ import annotations

from helios.runtime.geometry import Geometry, ProgramInfo
from helios.scheduler import Finish, Scheduler
from helios.worker.messages import Statistics


class RoundCounters:
    """Rounds completed and their launches, by operation name."""

    def __init__(self, geometry: Geometry) -> None:
        names = sorted({program.operation.name.lower() for program in geometry.programs})
        self.rounds = dict.fromkeys(names, 0)
        self.launches = dict.fromkeys(names, 0)

    def count(self, program: ProgramInfo) -> None:
        """A round of the program has completed."""
        name = program.operation.name.lower()
        self.rounds[name] += 1
        self.launches[name] += program.launches


def statistics(scheduler: Scheduler, rounds: RoundCounters) -> Statistics:
    """Counters since start, gauges now."""
    counters = scheduler.counters
    slots, pages = scheduler.slots, scheduler.pages
    return Statistics(
        counters={
            "requests_submitted": counters.submitted,
            "requests_rejected": counters.rejected,
            "prompt_tokens": counters.prompt_tokens,
            "prefilled_tokens": counters.prefilled_tokens,
            "output_tokens": counters.output_tokens,
            "preemptions": counters.preemptions,
            "empty_lanes": counters.empty_lanes,
        },
        gauges={
            "requests_running": scheduler.running,
            "requests_waiting": scheduler.waiting,
            "slots_used": slots.slots - slots.free,
            "slots_free": slots.free,
            "pages_used": pages.pages - pages.free,
            "pages_free": pages.free,
            "frames_in_flight": scheduler.frames_in_flight,
        },
        launches=dict(rounds.launches),
        rounds=dict(rounds.rounds),
        finished={finish.name.lower(): counters.finished[finish] for finish in Finish},
    )
