"""What `/metrics` shows: the HTTP process's own counts and the worker's statistics.

Names begin with `flare_`. Labels hold routes, status codes, operations and finish reasons; never
request ids, text or token ids.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Final

from helios.scheduler.tier_counts import TierCounts
from helios.server.exposition import Family, Histogram
from helios.server.lifecycle import Lifecycle, Phase
from helios.version import VERSION
from helios.worker.messages import Statistics, WorkerReady

_PREFIX: Final = "flare_"
# Names after `offload_`, and the fields of `TierCounts`. A content is a page or a snapshot.
_TIERS: Final = (
    ("stored_total", "stored", "Contents that went to the second tier."),
    ("stored_bytes_total", "stored_nbytes", "Bytes of them."),
    ("restored_total", "restored", "Contents that came back."),
    ("restored_bytes_total", "restored_nbytes", "Bytes of them."),
    ("evicted_total", "evicted", "Contents deleted for want of room."),
    ("dropped_total", "dropped", "Contents not stored because writing was behind."),
    ("damaged_total", "damaged", "Contents that weren't what was stored, and weren't used."),
    ("failures_total", "failures", "Errors in reading and writing."),
    ("entries", "entries", "Contents in the second tier."),
    ("bytes", "nbytes", "Bytes in the second tier."),
    ("limit_bytes", "limit_nbytes", "Bytes that the second tier may keep."),
)
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class HttpMetrics:
    """Counts of the HTTP process. Only touched by the event loop's thread."""

    def __init__(self) -> None:
        self.responses: Counter[tuple[str, int]] = Counter()
        self.disconnects = 0
        self._first_token = Histogram(_SECONDS)

    @staticmethod
    def clock() -> float:
        """Seconds on the clock of the latency metrics."""
        return time.monotonic()

    def first_token(self, began: float) -> None:
        """Notes that a request which `began` then has its first token now."""
        self._first_token.observe(self.clock() - began)

    def families(self, lifecycle: Lifecycle) -> list[Family]:
        """The process's own metrics."""
        model = lifecycle.model
        info = {
            "version": VERSION,
            "core": model.digest if model else "",
            "kernel_path": model.kernel_path if model else "",
        }
        families = [
            _gauge("build_info", "What runs here, as labels.", 1, info),
            _gauge("ready", "1 while requests are taken.", lifecycle.phase is Phase.READY),
            Family(
                f"{_PREFIX}http_responses_total",
                "counter",
                "Responses begun, by route and status.",
                [
                    ("", {"route": route, "status": str(status)}, count)
                    for (route, status), count in sorted(self.responses.items())
                ],
            ),
            _counter(
                "http_disconnects_total",
                "Generation requests whose client went away before their end.",
                self.disconnects,
            ),
            Family(
                f"{_PREFIX}http_first_token_seconds",
                "histogram",
                "From the start of preparation to the first generated token.",
                self._first_token.samples(),
            ),
        ]
        if model is not None:
            admission = model.admission
            families += [
                _gauge("http_permits", "Admission permits in use.", admission.held),
                _gauge("http_permit_capacity", "Admission permits in all.", admission.capacity),
                _counter("http_refused_total", "Requests refused with 429.", admission.refused),
                *_capacity_families(model.ready),
            ]
        return families


def _capacity_families(ready: WorkerReady) -> list[Family]:
    """What load-time selection resulted in."""
    tokens = ready.cache_pages * ready.page_tokens
    return [
        _gauge("request_slots", "Requests that can run at once.", ready.request_slots),
        _gauge("queue_capacity", "Requests that can wait for a slot.", ready.queue_capacity),
        _gauge("context_tokens", "Tokens of the longest request.", ready.max_context_tokens),
        _gauge("speculative_width", "Target tokens a lane; 0 is none.", ready.speculative_width),
        _gauge("cache_pages", "Pages of the attention cache.", ready.cache_pages),
        _gauge("cache_tokens", "Tokens that the attention cache holds.", tokens),
        _gauge("cache_bytes", "Memory of the attention cache.", ready.cache_nbytes),
        _gauge("snapshot_rows", "Snapshots that there is room for.", ready.snapshots),
        _gauge("prefix_reuse", "1 where prompts may begin from earlier ones.", ready.prefix_reuse),
    ]


def worker_families(statistics: Statistics) -> list[Family]:
    """The worker's counters and gauges."""
    families = [
        _counter(_total(name), f"{_words(name)}, since the worker started.", value)
        for name, value in _in_seconds(statistics.counters)
    ]
    families += [
        _gauge(name, f"{_words(name)}, now.", value)
        for name, value in sorted(statistics.gauges.items())
    ]
    families += [
        _labelled("launches_total", "Kernel launches executed.", "operation", statistics.launches),
        _labelled("rounds_total", "Rounds completed.", "operation", statistics.rounds),
        _labelled("requests_finished_total", "Requests ended.", "reason", statistics.finished),
    ]
    return families + _tier_families(statistics.tiers)


def _in_seconds(counters: Mapping[str, int]) -> list[tuple[str, float]]:
    """Sorted, those in nanoseconds under a name that says seconds."""
    return [
        (f"{name.removesuffix('_ns')}_seconds", value / 1e9) if name.endswith("_ns") else item
        for item in sorted(counters.items())
        for name, value in [item]
    ]


def _tier_families(tiers: Mapping[str, TierCounts]) -> list[Family]:
    """What went to the second tier and came back, by tier; none where there is no tier."""
    if not tiers:
        return []
    return [
        Family(
            f"{_PREFIX}offload_{name}",
            "counter" if name.endswith("_total") else "gauge",
            text,
            [("", {"tier": tier}, getattr(counts, field)) for tier, counts in tiers.items()],
        )
        for name, field, text in _TIERS
    ]


def _total(name: str) -> str:
    return name if name.endswith("_total") else f"{name}_total"


def _words(name: str) -> str:
    return name.removesuffix("_total").replace("_", " ").capitalize()


def _counter(name: str, text: str, value: float) -> Family:
    return Family(_PREFIX + name, "counter", text, [("", {}, value)])


def _gauge(name: str, text: str, value: float, labels: dict[str, str] | None = None) -> Family:
    return Family(_PREFIX + name, "gauge", text, [("", labels or {}, value)])


def _labelled(name: str, text: str, label: str, values: dict[str, int]) -> Family:
    samples = [("", {label: key.lower()}, value) for key, value in sorted(values.items())]
    return Family(_PREFIX + name, "counter", text, samples)
