"""What the tiers have done and hold, in the same terms for host memory and files."""

from __future__ import annotations

from helios.scheduler.cache.offload.file_tier import FileTier
from helios.scheduler.cache.offload.host_tier import HostTier
from helios.scheduler.tier_counts import TierCounts


def counts(host: HostTier | None, files: FileTier | None) -> dict[str, TierCounts]:
    """By tier, `host` and `files`, as far as they are there."""
    found: dict[str, TierCounts] = {}
    if host is not None:
        kept = host.counters
        found["host"] = TierCounts(
            stored=kept.stored,
            stored_nbytes=kept.stored_nbytes,
            restored=kept.found,
            restored_nbytes=kept.found_nbytes,
            evicted=kept.evicted,
            entries=len(host),
            nbytes=host.nbytes,
            limit_nbytes=host.limit_nbytes,
        )
    if files is not None:
        seen = files.counters
        found["files"] = TierCounts(
            stored=seen.written,
            stored_nbytes=seen.written_nbytes,
            restored=seen.read,
            restored_nbytes=seen.read_nbytes,
            evicted=seen.evicted,
            dropped=files.dropped,
            damaged=seen.damaged,
            failures=seen.write_failures + seen.read_failures,
            entries=len(files),
            nbytes=files.nbytes,
            limit_nbytes=files.limit_nbytes,
        )
    return found
