"""The worker's counts by operation and the `Statistics` message made of them and the scheduler's.

Metric names are the message's keys, without prefix; the HTTP process renders them, those that end
with `_ns` in seconds.
"""

from __future__ import annotations

from helios.runtime.geometry import Geometry, ProgramInfo
from helios.scheduler import Finish, Scheduler
from helios.scheduler.second_tier import SecondTier
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


def statistics(
    scheduler: Scheduler,
    rounds: RoundCounters,
    violations: int = 0,
    tier: SecondTier | None = None,
) -> Statistics:
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
            "preemptions_by_snapshot": counters.preemptions_by_snapshot,
            "prefix_queries": counters.prefix_queries,
            "prefix_hits": cache.counters.hits,
            "prefix_queried_tokens": counters.prefix_queried_tokens,
            "prefix_reused_tokens": cache.counters.reused_tokens,
            "pages_published": cache.counters.published_pages,
            "pages_evicted": cache.counters.evicted_pages,
            "snapshots_published": cache.counters.published_snapshots,
            "snapshots_evicted": cache.counters.evicted_snapshots,
            "integrity_violations": violations,
            "round_device_ns": counters.device_ns,
            "round_predicted_ns": round(counters.predicted_ns),
            "round_prediction_error_ns": round(counters.prediction_error_ns),
        },
        gauges={
            "requests_running": scheduler.running,
            "requests_waiting": scheduler.waiting,
            "slots_used": slots.slots - slots.free,
            "slots_free": slots.free,
            "pages_used": pages.pages - pages.free - cache.evictable_pages,
            "pages_cached": cache.evictable_pages,
            "pages_free": pages.free,
            "snapshots_used": snapshots.rows - snapshots.free - cache.evictable_rows,
            "snapshots_cached": cache.evictable_rows,
            "snapshots_free": snapshots.free,
            "frames_in_flight": scheduler.frames_in_flight,
        },
        launches=dict(rounds.launches),
        rounds=dict(rounds.rounds),
        finished={finish.name.lower(): counters.finished[finish] for finish in Finish},
        tiers={} if tier is None else tier.counts(),
    )
