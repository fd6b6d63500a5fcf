"""The second tier: content of pages and snapshots in host memory and in files, by key.

`open_second_tier` makes an `Offload`, which moves content between the prefix cache and its tiers.
"""

from helios.scheduler.cache.offload.offload import Offload
from helios.scheduler.cache.offload.opening import TierOptions, open_second_tier

__all__ = ["Offload", "TierOptions", "open_second_tier"]
