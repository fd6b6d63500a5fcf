"""What a scripted worker says of itself: every number that a real one has, and each another one."""

from __future__ import annotations

import dataclasses
import itertools

import msgspec

from helios.process_usage import ProcessUsage
from helios.scheduler import Scheduler
from helios.scheduler.tier_counts import TierCounts
from helios.worker.histograms import HistogramCounts
from helios.worker.messages import ProgramCounts, Statistics
from helios.worker.request_times import RequestTimes
from helios.worker.round_counters import RoundCounters
from helios.worker.statistics import statistics
from tests.scheduler.fake_geometry import geometry


def scripted_statistics() -> Statistics:
    """The names are the real worker's. The numbers count up from 101 in the order in which names
    sort; nanoseconds are so many half seconds."""
    shape = geometry()
    real = statistics(Scheduler(shape), RoundCounters(shape), RequestTimes(lambda: 0))
    numbers = itertools.count(101)
    counters = {name: next(numbers) for name in sorted(real.counters)}
    tier = TierCounts(*(next(numbers) for _ in dataclasses.fields(TierCounts)))
    return msgspec.structs.replace(
        real,
        counters={
            name: number * 500_000_000 if name.endswith("_ns") else number
            for name, number in counters.items()
        },
        gauges={name: float(next(numbers)) for name in sorted(real.gauges)},
        finished={reason: next(numbers) for reason in sorted(real.finished)},
        tiers={"files": tier},
        programs={"decode.b2": ProgramCounts("decode", 3, 21, 5, 6, 5, 6)},
        histograms={name: HistogramCounts((0.5, 2.0), (1, 2, 3), 9.5) for name in real.histograms},
        usage=ProcessUsage(1 << 20, 2.5),
    )
