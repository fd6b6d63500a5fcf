"""What several HTTP processes have counted adds up."""

from __future__ import annotations

import msgspec

from helios.process_usage import ProcessUsage, process_usage
from helios.server.http_snapshot import HttpSnapshot
from helios.worker.histograms import HistogramCounts


def _snapshot(number: int) -> HttpSnapshot:
    return HttpSnapshot(
        processes=1,
        responses={"/ready": {200: number, 503: 1}, f"/{number}": {404: 2}},
        disconnects=number,
        refused=2 * number,
        permits_held=3 * number,
        preparing=4 * number,
        preparation_waiting=5 * number,
        preparation_slots=2,
        usage=ProcessUsage(1000 * number, 0.5 * number),
        histograms={
            "seconds": HistogramCounts((1.0,), (number, 1), 0.25 * number),
            f"only_{number}": HistogramCounts((1.0,), (1, 0), 0.5),
        },
    )


def test_two_add_up() -> None:
    merged = _snapshot(1).merge(_snapshot(10))
    assert merged == HttpSnapshot(
        processes=2,
        responses={"/ready": {200: 11, 503: 2}, "/1": {404: 2}, "/10": {404: 2}},
        disconnects=11,
        refused=22,
        permits_held=33,
        preparing=44,
        preparation_waiting=55,
        preparation_slots=4,
        usage=ProcessUsage(11_000, 5.5),
        histograms={
            "seconds": HistogramCounts((1.0,), (11, 2), 2.75),
            "only_1": HistogramCounts((1.0,), (1, 0), 0.5),
            "only_10": HistogramCounts((1.0,), (1, 0), 0.5),
        },
    )


def test_order_makes_no_difference_and_nothing_changes_the_parts() -> None:
    one, two, three = (_snapshot(number) for number in (1, 2, 4))
    forwards = one.merge(two).merge(three)
    assert forwards == three.merge(two.merge(one))
    assert [one, two, three] == [_snapshot(number) for number in (1, 2, 4)]


def test_it_travels() -> None:
    snapshot = _snapshot(7)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot), type=HttpSnapshot) == snapshot


def test_a_process_takes_memory_and_time() -> None:
    usage = process_usage()
    assert usage.resident_nbytes > 1 << 20
    assert usage.cpu_s > 0
