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


def statistics(scheduler: Scheduler, rounds: RoundCounters, violations: int = 0) -> Statistics:
    """Counters since start, gauges now. `violations` counts what was wrong with the books."""
    counters, cache = scheduler.counters, scheduler.cache
    slots, pages, snapshots = scheduler.slots, cache.pages, cache.rows
    return Statistics(
        counters={
            "requests_submitted": counters.submitted,
            "requests_rejected": counters.rejected,
            "prompt_tokens": counters.prompt_tokens,
            "prefilled_tokens": counters.prefilled_tokens,
            "output_tokens": counters.output_tokens,
            "preemptions": counters.preemptions,
            "empty_lanes": counters.empty_lanes,
            "prefix_hits": cache.counters.hits,
            "prefix_reused_tokens": cache.counters.reused_tokens,
            "pages_published": cache.counters.published_pages,
            "pages_evicted": cache.counters.evicted_pages,
            "snapshots_published": cache.counters.published_snapshots,
            "snapshots_evicted": cache.counters.evicted_snapshots,
            "integrity_violations": violations,
        },
        gauges={
            "requests_running": scheduler.running,
            "requests_waiting": scheduler.waiting,
            "slots_used": slots.slots - slots.free,
            "slots_free": slots.free,
            "pages_used": pages.pages - pages.free - cache.evictable_pages,
            "pages_cached": cache.evictable_pages,
            "pages_free": pages.free,
            "snapshots_cached": cache.evictable_rows,
            "snapshots_free": snapshots.free,
            "frames_in_flight": scheduler.frames_in_flight,
        },
        launches=dict(rounds.launches),
        rounds=dict(rounds.rounds),
        finished={finish.name.lower(): counters.finished[finish] for finish in Finish},
    )
