"""The prefix cache: pages and snapshots by the tokens that lead to them. `PrefixCache` is the door.

Pure host data, no device.
"""

from helios.scheduler.cache.pages import PagePool
from helios.scheduler.cache.prefix_cache import PrefixCache
from helios.scheduler.cache.rows import NO_ROW, RowPool
from helios.scheduler.cache.tree import NO_PAGE
from helios.scheduler.cache.values import (
    CacheCounters,
    CacheListener,
    Evicted,
    Hold,
    Match,
    Published,
)

__all__ = [
    "NO_PAGE",
    "NO_ROW",
    "CacheCounters",
    "CacheListener",
    "Evicted",
    "Hold",
    "Match",
    "PagePool",
    "PrefixCache",
    "Published",
    "RowPool",
]
