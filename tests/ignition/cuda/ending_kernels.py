"""What a process that compiles doesn't survive: importing this there ends it, as a system does that
has no memory left."""

from __future__ import annotations

import multiprocessing
import os
import signal

if multiprocessing.parent_process() is not None:
    os.kill(os.getpid(), signal.SIGKILL)


def kernel() -> None:
    """As far as the process that asks for it knows."""
