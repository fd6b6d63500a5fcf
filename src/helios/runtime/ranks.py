"""Where the ranks of one served model run. A name from the specification; imports nothing, so that
options can hold it."""

from __future__ import annotations

from enum import Enum


class RankPeers(Enum):
    """How the tensor-parallel peers of a model are reached."""

    THREADS = "threads"
    """Ranks on this host, a device each, all driven by one launching loop."""
    PROCESSES = "processes"
    """Ranks on other hosts, a process each, that connect to this one."""
