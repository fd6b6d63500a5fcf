"""What metrics cost the HTTP process: nanoseconds a token that arrives, microseconds a scrape.

    python benchmarks/metrics.py

256 answers are watched at once, as in `http_streams.py`, whose figures contain this. Aim: less than
1 µs a token.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Final

from helios.process_usage import process_usage
from helios.server.exposition import render
from helios.server.http_families import http_families
from helios.server.metrics import HttpMetrics
from helios.worker.messages import Sampling, Submit, TokensEvent

_STREAMS: Final = 256
_EVENTS: Final = 20
_PASSES: Final = 31


def _token_ns(metrics: HttpMetrics, tokens: int) -> float:
    """Of a token in events of so many."""
    event = TokensEvent(1, [7] * tokens, [-0.5] * tokens, 0)
    sampling = Sampling(0.0, 0, 1.0, 0.0, 1)
    arrived = {
        number: metrics.watch(Submit(number, [1] * 8, 4096, sampling, []), metrics.clock()).arrived
        for number in range(_STREAMS)
    }

    def one_pass() -> None:
        for _ in range(_EVENTS):
            for number in range(_STREAMS):
                arrived[number](event)

    return _median_ns(one_pass) / (_EVENTS * _STREAMS * tokens)


def _median_ns(work: Callable[[], object]) -> float:
    times = []
    for _ in range(_PASSES):
        began = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - began)
    return median(times)


def main() -> None:
    """Prints the medians."""
    metrics = HttpMetrics()
    for tokens in (1, 4):
        print(f"{_token_ns(metrics, tokens):6.0f} ns a token, {tokens} an event")
    snapshot = _median_ns(lambda: metrics.snapshot(None))
    shown = _median_ns(lambda: render(http_families(metrics.snapshot(None))))
    print(f"{snapshot / 1e3:6.0f} µs a snapshot of an HTTP process")
    print(f"{shown / 1e3:6.0f} µs a snapshot and its text")
    print(f"{_median_ns(process_usage) / 1e3:6.1f} µs of it to ask for memory and CPU time")


if __name__ == "__main__":
    main()
