"""What a second tier of the prefix cache says of itself. Data alone: it travels in `Statistics`."""

from __future__ import annotations

from helios.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class TierCounts:
    """What one tier did since start, in contents (pages and snapshots) and their bytes, and what it
    holds now. `dropped` are contents that it couldn't keep up with, `damaged` those that weren't
    what was stored and so weren't used, `failures` errors of what it stores them on."""

    stored: int = 0
    stored_nbytes: int = 0
    restored: int = 0
    restored_nbytes: int = 0
    evicted: int = 0
    dropped: int = 0
    damaged: int = 0
    failures: int = 0
    entries: int = 0
    nbytes: int = 0
    limit_nbytes: int = 0
