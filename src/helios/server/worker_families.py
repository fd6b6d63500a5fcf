"""The model worker's metrics: names, kinds, meanings. A name that isn't here isn't shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from helios.scheduler.tier_counts import TierCounts
from helios.server.exposition import Family, counter, counters, gauge, gauges, histogram
from helios.server.http_families import PREFIX
from helios.worker.messages import ProgramCounts, Statistics

# By their keys in `Statistics.counters`; `_total` is added, `_ns` becomes seconds.
_COUNTERS: Final = {
    "requests_submitted": "Requests that the scheduler accepted, each choice for itself.",
    "requests_rejected": "Requests that the scheduler refused; nothing of them ran.",
    "prompt_tokens": "Prompt tokens of accepted requests.",
    "cached_tokens": "Prompt tokens that requests found in the prefix cache when first admitted.",
    "prefilled_tokens": "Prompt tokens that rounds computed; after preemption again.",
    "output_tokens": "Tokens generated.",
    "preemptions": "Running requests that gave way to others.",
    "preemptions_by_snapshot": "Preemptions after which the request goes on from where it was.",
    "empty_lanes": "Lanes of rounds whose request had ended when they ran.",
    "prefix_queries": "Admissions that were free to reuse something.",
    "prefix_hits": "Admissions that reused something.",
    "prefix_queried_tokens": "Tokens that admissions could have reused at most.",
    "prefix_reused_tokens": "Tokens that admissions reused.",
    "pages_published": "Pages made reusable.",
    "pages_evicted": "Reusable pages dropped for want of room.",
    "snapshots_published": "Snapshots made reusable.",
    "snapshots_evicted": "Reusable snapshots dropped for want of room.",
    "integrity_violations": "Findings that the scheduler's books don't agree: bugs.",
    "grammar_compiled": "Grammars compiled in the worker.",
    "grammar_cached": "Requests whose grammar had been compiled for another one.",
    "grammar_compile_ns": "Time that compiling took, beside rounds.",
    "grammar_masks": "Tokens of constrained requests before which their grammar was asked.",
    "grammar_mask_ns": "Time that following grammars took between rounds.",
    "grammar_forced_tokens": "Tokens that a grammar left no choice about, consumed unsampled.",
    "mixed_grammar_decode_steps": "Decode rounds submitted with and without a grammar together.",
    "round_device_ns": "Time that rounds ran on the device.",
    "round_predicted_ns": "Time predicted of rounds of which there was a prediction.",
    "round_prediction_error_ns": "How far off predictions were, either way.",
}
_GAUGES: Final = {
    "requests_running": "Requests that hold a slot.",
    "requests_waiting": "Requests that wait for a slot.",
    "slots_used": "Request slots in use.",
    "slots_free": "Request slots that are free.",
    "pages_used": "Cache pages that requests hold.",
    "pages_cached": "Cache pages that nobody holds and that can be reused.",
    "pages_free": "Cache pages without content.",
    "snapshots_used": "Snapshots that requests hold.",
    "snapshots_cached": "Snapshots that nobody holds and that can be reused.",
    "snapshots_free": "Snapshot places without content.",
    "constrained_max_inflight": "Most rounds in flight after one with a grammar was submitted.",
    "frames": "Rounds that may be in flight at once.",
    "frames_in_flight": "Rounds submitted and not completed.",
}
_HISTOGRAMS: Final = {
    "request_queue_seconds": "From a request's arrival at the scheduler to its first admission.",
    "request_prefill_seconds": "From a request's first admission to its first token.",
}
# Names after the prefix, and the fields of `ProgramCounts`.
_PROGRAMS: Final = (
    ("launches_total", "launches", "Kernel launches executed."),
    ("rounds_total", "rounds", "Rounds completed."),
    ("round_lanes_total", "lanes", "Lanes that rounds had."),
    ("round_lanes_offered_total", "lanes_offered", "Lanes that rounds had room for."),
    ("round_tokens_total", "tokens", "Packed tokens that rounds consumed."),
    ("round_tokens_offered_total", "tokens_offered", "Packed tokens that rounds had room for."),
)
# Names after `offload_`, and the fields of `TierCounts`. A content is a page or a snapshot.
_TIERS: Final = (
    ("stored_total", "stored", "Contents that went to the second tier."),
    ("stored_bytes_total", "stored_nbytes", "Bytes that went to the second tier."),
    ("restored_total", "restored", "Contents that came back from the second tier."),
    ("restored_bytes_total", "restored_nbytes", "Bytes that came back from the second tier."),
    ("evicted_total", "evicted", "Contents deleted for want of room."),
    ("dropped_total", "dropped", "Contents not stored because writing was behind."),
    ("damaged_total", "damaged", "Contents that weren't what was stored, and weren't used."),
    ("failures_total", "failures", "Errors in reading and writing."),
    ("entries", "entries", "Contents in the second tier."),
    ("bytes", "nbytes", "Bytes in the second tier."),
    ("limit_bytes", "limit_nbytes", "Bytes that the second tier may keep."),
)


def worker_families(statistics: Statistics) -> list[Family]:
    """Counters since the worker's start, and gauges now."""
    known = statistics.counters
    families = [_counter(name, text, known[name]) for name, text in _COUNTERS.items()]
    families += [
        gauge(f"{PREFIX}{name}", text, statistics.gauges[name]) for name, text in _GAUGES.items()
    ]
    families.append(
        counters(
            f"{PREFIX}requests_finished_total",
            "Accepted requests that ended, by reason.",
            [({"reason": reason}, count) for reason, count in statistics.finished.items()],
        )
    )
    families += [
        histogram(f"{PREFIX}{name}", text, statistics.histograms[name])
        for name, text in _HISTOGRAMS.items()
    ]
    return families + _program_families(statistics.programs) + _tier_families(statistics.tiers)


def _counter(name: str, text: str, value: int) -> Family:
    if name.endswith("_ns"):
        return counter(f"{PREFIX}{name.removesuffix('_ns')}_seconds_total", text, value / 1e9)
    return counter(f"{PREFIX}{name}_total", text, value)


def _program_families(programs: Mapping[str, ProgramCounts]) -> list[Family]:
    """By program; there are as many as the core has, and sums over an operation are the reader's.
    Names are those that `helios inspect` shows."""
    return [
        counters(
            f"{PREFIX}{name}",
            text,
            [
                ({"operation": counts.operation, "program": program}, getattr(counts, field))
                for program, counts in sorted(programs.items())
            ],
        )
        for name, field, text in _PROGRAMS
    ]


def _tier_families(tiers: Mapping[str, TierCounts]) -> list[Family]:
    """What went to the second tier and came back, by tier; none where there is no tier."""
    if not tiers:
        return []
    families = []
    for name, field, text in _TIERS:
        make = counters if name.endswith("_total") else gauges
        values = [({"tier": tier}, getattr(counts, field)) for tier, counts in tiers.items()]
        families.append(make(f"{PREFIX}offload_{name}", text, values))
    return families
