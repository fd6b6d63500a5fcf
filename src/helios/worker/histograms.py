"""Histograms as Prometheus has them, and the buckets of ours.

A `Histogram` counts; `HistogramCounts` is what it has counted, which travels between processes and
adds up. The worker and the HTTP processes have both.

Buckets are where somebody decides: fine around the times that people notice and promise, coarse
beyond, from the quickest that hardware of today does to the longest that anybody waits.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import msgspec

# Seconds. Upper ends, ascending.
QUEUE_SECONDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
FIRST_TOKEN_SECONDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 2.5, 5.0, 7.5, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
# A reader follows some ten tokens a second, so what is above 0.1 s shows; below it speeds matter.
INTER_TOKEN_SECONDS: Final = (
    *(0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.0125, 0.015, 0.02, 0.025),
    *(0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0),
)
ANSWER_SECONDS: Final = (
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0),
    *(30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0),
)
PREPARATION_SECONDS: Final = (
    *(0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)
# Contexts are powers of two, and lengths spread over all of them.
LENGTH_TOKENS: Final = tuple(float(1 << power) for power in range(21))


class HistogramCounts(msgspec.Struct, frozen=True, array_like=True):
    """What a histogram has counted: `counts` has one number a bucket, not cumulative, and one for
    what lies above `bounds`; `sum` is of the values."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float

    @property
    def count(self) -> int:
        """Observations in all."""
        return sum(self.counts)

    def merge(self, other: HistogramCounts) -> HistogramCounts:
        """Both together; they have the same buckets."""
        assert self.bounds == other.bounds, "histograms of different buckets don't add up"
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return HistogramCounts(self.bounds, counts, self.sum + other.sum)


class Histogram:
    """Counts observations. Not thread-safe."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """`bounds` are the buckets' upper ends, ascending."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Counts one observation."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def observe_burst(self, value: float, others: int) -> None:
        """Counts `value` and so many observations of 0, which came together with it."""
        counts = self._counts
        counts[bisect_left(self._bounds, value)] += 1
        counts[0] += others
        self._sum += value

    def counts(self) -> HistogramCounts:
        """What has been counted so far."""
        return HistogramCounts(self._bounds, tuple(self._counts), self._sum)
