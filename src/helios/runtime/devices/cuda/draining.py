"""How long a GPU that is closed is waited for. `CudaDevice` asks."""

from __future__ import annotations

import time
from typing import Final

from helios.runtime.device import FAILED_DRAIN_NS
from helios.runtime.devices.cuda.driver import NOT_READY, DriverError
from helios.runtime.devices.cuda.gpu import Gpu
from helios.runtime.devices.cuda.watch import RoundWatch

_LOOK_S: Final = 0.001


def drained(gpu: Gpu, watch: RoundWatch | None, limit_ns: int, by_ns: int | None) -> bool:
    """Waits until nothing runs any more, because all has ended or the context is lost; False where
    it doesn't come to that in time. What runs has `limit_ns`, a round from its beginning on, and
    less where something has failed; `by_ns` is the end of all patience, if there is one."""
    failed = None if watch is None else watch.failure
    if failed is not None:
        hung = not isinstance(failed, DriverError)
        limit_ns = 0 if hung else min(limit_ns, FAILED_DRAIN_NS)
    deadline = time.monotonic_ns() + limit_ns
    if by_ns is not None:
        deadline = min(deadline, by_ns)
    while int(gpu.driver.cuStreamQuery(gpu.stream)[0]) == NOT_READY:
        now = time.monotonic_ns()
        if now >= deadline or (watch is not None and watch.overdue(now)):
            return False
        time.sleep(_LOOK_S)
    return True
