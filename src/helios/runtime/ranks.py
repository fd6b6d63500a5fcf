"""Where the ranks of one served model run. A name from the specification; imports nothing, so that
options can hold it."""

from __future__ import annotations

from enum import Enum


class RankPeers(Enum):
    """How the tensor-parallel peers of a model are reached."""

    THREADS = "threads"
    """All ranks in this process, a thread each."""
    PROCESSES = "processes"
    """Ranks on other hosts, a process each, that connect to this one."""
