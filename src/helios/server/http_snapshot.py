"""What one HTTP process has counted, as a value: it travels, and those of several add up."""

from __future__ import annotations

import msgspec

from helios.process_usage import ProcessUsage
from helios.worker.histograms import HistogramCounts


class HttpSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """Counts since an HTTP process began, and what it holds now; merged: of so many `processes`.

    `responses` counts those begun, by route and status. `refused` are requests for which there was
    no permit, `permits_held` the permits that this process holds itself. `preparing` are requests
    whose prompt is being prepared or waits for it, `preparation_waiting` the latter alone, of
    `preparation_slots` that can be prepared at once. `histograms` are by name without prefix.
    """

    processes: int
    responses: dict[str, dict[int, int]]
    disconnects: int
    refused: int
    permits_held: int
    preparing: int
    preparation_waiting: int
    preparation_slots: int
    usage: ProcessUsage
    histograms: dict[str, HistogramCounts]

    def counted(self) -> HttpSnapshot:
        """What has been counted, without what was held: of a process that is gone."""
        return msgspec.structs.replace(
            self,
            processes=0,
            permits_held=0,
            preparing=0,
            preparation_waiting=0,
            preparation_slots=0,
            usage=ProcessUsage(0, self.usage.cpu_s),
        )

    def merge(self, other: HttpSnapshot) -> HttpSnapshot:
        """What both have counted. Commutative and associative."""
        histograms = dict(self.histograms)
        for name, counts in other.histograms.items():
            mine = histograms.get(name)
            histograms[name] = counts if mine is None else mine.merge(counts)
        return HttpSnapshot(
            processes=self.processes + other.processes,
            responses=_added(self.responses, other.responses),
            disconnects=self.disconnects + other.disconnects,
            refused=self.refused + other.refused,
            permits_held=self.permits_held + other.permits_held,
            preparing=self.preparing + other.preparing,
            preparation_waiting=self.preparation_waiting + other.preparation_waiting,
            preparation_slots=self.preparation_slots + other.preparation_slots,
            usage=self.usage.merge(other.usage),
            histograms=histograms,
        )


def _added(
    one: dict[str, dict[int, int]], other: dict[str, dict[int, int]]
) -> dict[str, dict[int, int]]:
    result = {route: dict(statuses) for route, statuses in one.items()}
    for route, statuses in other.items():
        mine = result.setdefault(route, {})
        for status, count in statuses.items():
            mine[status] = mine.get(status, 0) + count
    return result
