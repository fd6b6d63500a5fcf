"""The GPU's clock in terms of `time.monotonic_ns`.

The two drift apart by some microseconds a second, so the difference found at load is corrected by
every round: none begins before it was submitted, none ends after the host has seen it end.
"""

from __future__ import annotations


class GpuClock:
    """Translates stamps of `%globaltimer`. Rounds that were observed bound the difference."""

    def __init__(self) -> None:
        self._least: int | None = None
        self._most: int | None = None
        self._difference = 0

    def calibrate(self, submitted_ns: int, start: int, end: int, seen_ns: int) -> None:
        """Narrows the difference down by a round that ran between two moments of the host."""
        least, most = submitted_ns - start, seen_ns - end
        self._least = least if self._least is None else max(self._least, least)
        self._most = most if self._most is None else min(self._most, most)
        self._difference = (self._least + self._most) // 2

    def times(self, submitted_ns: int, start: int, end: int, seen_ns: int) -> tuple[int, int]:
        """(start, end) of a round on the host's clock."""
        if start + self._difference < submitted_ns:
            self._difference = submitted_ns - start
        if end + self._difference > seen_ns:
            self._difference = seen_ns - end
        return start + self._difference, end + self._difference
