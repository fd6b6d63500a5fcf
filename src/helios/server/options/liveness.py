"""When a server counts as stalled."""

from __future__ import annotations

import math

from helios.dataclass import dataclass
from helios.errors import HeliosError


@dataclass(frozen=True, slots=True)
class LivenessOptions:
    """With work to do, the device may make no progress for `stall_timeout_s` before `/health` says
    so. Raises HeliosError for what is no time."""

    stall_timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.stall_timeout_s) and self.stall_timeout_s > 0):
            raise HeliosError(
                f"{self.stall_timeout_s} is no time",
                where="--stall-timeout",
                remedy="Give seconds, more than 0",
            )
