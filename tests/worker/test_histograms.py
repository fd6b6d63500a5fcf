"""Histograms: what falls where, and that parts add up to the whole."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.worker import histograms
from helios.worker.histograms import Histogram, HistogramCounts

BOUNDS = (0.5, 1.0, 8.0)
VALUES = st.lists(st.floats(0, 100), max_size=30)


def test_a_bucket_has_its_upper_end() -> None:
    histogram = Histogram(BOUNDS)
    for value in (0.0, 0.5, 0.75, 1.0, 8.0, 8.1):
        histogram.observe(value)
    assert histogram.counts() == HistogramCounts(BOUNDS, (2, 2, 1, 1), 18.35)
    assert histogram.counts().count == 6


def test_a_burst_is_one_wait_and_no_wait_for_the_others() -> None:
    burst, singly = Histogram(BOUNDS), Histogram(BOUNDS)
    burst.observe_burst(0.75, 3)
    for value in (0.75, 0.0, 0.0, 0.0):
        singly.observe(value)
    assert burst.counts() == singly.counts()


@given(VALUES, VALUES)
def test_parts_add_up(one: list[float], other: list[float]) -> None:
    parts = [Histogram(BOUNDS), Histogram(BOUNDS)]
    whole = Histogram(BOUNDS)
    for part, values in zip(parts, (one, other), strict=True):
        for value in values:
            part.observe(value)
            whole.observe(value)
    merged = parts[0].counts().merge(parts[1].counts())
    assert merged.counts == whole.counts().counts
    assert merged.sum == pytest.approx(whole.counts().sum)


def test_counts_travel() -> None:
    counts = HistogramCounts(BOUNDS, (1, 2, 3, 4), 5.5)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(counts), type=HistogramCounts) == counts


def test_buckets_ascend() -> None:
    every = {name: bounds for name, bounds in vars(histograms).items() if name.isupper()}
    assert len(every) == 6
    for bounds in every.values():
        assert list(bounds) == sorted(set(bounds))
        assert bounds[0] > 0
