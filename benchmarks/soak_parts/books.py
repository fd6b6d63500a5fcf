"""A server's books at the end of a soak, and its processes' memory along the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Nothing may be held when nobody asks for anything.
NOTHING = (
    "flare_http_permits",
    "flare_requests_running",
    "flare_requests_waiting",
    "flare_slots_used",
    "flare_pages_used",
    "flare_snapshots_used",
    "flare_frames_in_flight",
)
NEVER = (
    "flare_integrity_violations_total",
    'flare_requests_finished_total{reason="failed"}',
    "flare_requests_rejected_total",
)
# Before memory has settled: what is allocated once, lazily.
_SETTLES = 0.4


def is_quiet(metrics: Mapping[str, float]) -> bool:
    """Whether nothing is held."""
    return all(metrics[name] == 0 for name in NOTHING)


def unbalanced(metrics: Mapping[str, float]) -> list[str]:
    """What is wrong with the books of a server that nobody asks for anything."""
    wrong = [
        f"{name} is {metrics[name]:g}, not 0" for name in (*NOTHING, *NEVER) if metrics[name] != 0
    ]
    for kind, capacity in (("pages", "flare_cache_pages"), ("snapshots", "flare_snapshot_rows")):
        parts = [metrics[f"flare_{kind}_{state}"] for state in ("used", "cached", "free")]
        if sum(parts) != metrics[capacity]:
            wrong.append(f"{kind}: {parts} aren't the {metrics[capacity]:g} that there are")
    if metrics["flare_slots_free"] != metrics["flare_request_slots"]:
        wrong.append(f"{metrics['flare_slots_free']:g} slots are free, not all")
    return wrong


@dataclass(frozen=True)
class MemorySample:
    """Private memory in KiB when so many requests were over."""

    requests: int
    kib: float


def private_kib(pid: int) -> float:
    """Memory of a process that no file backs."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return float(line.split()[1])
    raise ValueError(f"process {pid} has no RssAnon")


def slope_kib(samples: Sequence[MemorySample]) -> float:
    """KiB that 1,000 requests add, by least squares over what comes after memory has settled."""
    late = samples[int(len(samples) * _SETTLES) :]
    if len(late) < 2 or late[0].requests == late[-1].requests:
        return 0.0
    mean_x = sum(sample.requests for sample in late) / len(late)
    mean_y = sum(sample.kib for sample in late) / len(late)
    over = sum((sample.requests - mean_x) * (sample.kib - mean_y) for sample in late)
    return 1000 * over / sum((sample.requests - mean_x) ** 2 for sample in late)
