"""The `Statistics` message, made of the scheduler's counts, the rounds' and the requests' times.

Metric names are the message's keys, without prefix; the HTTP process renders them, those that end
with `_ns` in seconds.
"""

from __future__ import annotations

from typing import Final

from helios.process_usage import process_usage
from helios.scheduler import Finish, Scheduler
from helios.scheduler.second_tier import SecondTier
from helios.worker.grammars import GrammarCounters
from helios.worker.messages import Statistics
from helios.worker.request_times import RequestTimes
from helios.worker.round_counters import RoundCounters

NO_GRAMMARS: Final = GrammarCounters()


def statistics(
    scheduler: Scheduler,
    rounds: RoundCounters,
    times: RequestTimes,
    violations: int = 0,
    tier: SecondTier | None = None,
    grammars: GrammarCounters = NO_GRAMMARS,
) -> Statistics:
    """Counters since start, gauges now. `violations` counts what was wrong with the books."""
    scheduler.costs.learn()  # which counts how far off predictions were
    counters, cache = scheduler.counters, scheduler.cache
    slots, pages, snapshots = scheduler.slots, cache.pages, cache.rows
    return Statistics(
        counters={
            "requests_submitted": counters.submitted,
            "requests_rejected": counters.rejected,
            "prompt_tokens": counters.prompt_tokens,
            "cached_tokens": counters.cached_tokens,
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
            "grammar_compiled": grammars.compiled,
            "grammar_cached": grammars.cached,
            "grammar_compile_ns": grammars.compile_ns,
            "grammar_masks": grammars.masks,
            "grammar_mask_ns": grammars.mask_ns,
            "grammar_forced_tokens": counters.forced_tokens,
            "mixed_grammar_decode_steps": counters.mixed_grammar_decode_steps,
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
            "constrained_max_inflight": counters.constrained_max_inflight,
            "frames": scheduler.frames,
            "frames_in_flight": scheduler.frames_in_flight,
        },
        launches=rounds.launches,
        rounds=rounds.rounds,
        finished={finish.name.lower(): counters.finished[finish] for finish in Finish},
        tiers={} if tier is None else tier.counts(),
        programs=rounds.by_program(),
        histograms=times.histograms(),
        usage=process_usage(),
    )
