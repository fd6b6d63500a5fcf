"""Uploading admission histograms as deltas: the counts above zero, once for each admission.

A generation is admitted again, where it stands, when it has got tokens that weren't sampled: then
it brings more emitted ones. The program that takes them clears the rows of its lanes before it
scatters. One `HistogramUpload` serves a table in all programs and frames. Called by
`delta_uploads`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from helios.runtime.page_upload import DeltaStaging, LaneValueError
from helios.runtime.rounds import LaneWork
from helios.runtime.value_bounds import Bounds


class HistogramUpload:
    """Whose histogram the table's rows began with: for each slot a generation, and how many tokens
    it had emitted. `counted` gives the ids
    that a lane's histogram counts; where nobody will look at it there are none."""

    def __init__(
        self,
        counted: Callable[[LaneWork, Bounds], NDArray[np.int64]],
        *,
        request_slots: int,
    ) -> None:
        self._counted = counted
        self._begun = [(0, 0)] * request_slots
        self._pending: list[tuple[int, tuple[int, int]]] = []

    def stage(self, staging: DeltaStaging, lanes: Sequence[LaneWork], bounds: Bounds) -> None:
        """Writes (id, count) pairs of lanes whose slot has another admission's; `commit` makes
        them remembered. Raises LaneValueError where a lane has no history or a wrong one."""
        self._pending.clear()
        end = 0
        for index, lane in enumerate(lanes):
            admission = lane.generation, lane.admission.emitted if lane.admission else 0
            if self._begun[lane.slot] == admission:
                continue
            try:
                tokens = self._counted(lane, bounds)
            except (OverflowError, ValueError) as error:
                raise LaneValueError(index, str(error)) from error
            self._pending.append((lane.slot, admission))
            if not len(tokens):
                continue
            ids, counts = np.unique(tokens, return_counts=True)
            begin, end = end, end + len(ids)
            # Staging for the longest histories of all lanes was checked at start-up.
            staging.index[begin:end] = ids + lane.slot * bounds.histogram_tokens
            staging.value[begin:end] = counts
        staging.count[0] = end

    def commit(self) -> None:
        """Remembers what the last `stage` wrote: the round that carries it will be submitted."""
        for slot, admission in self._pending:
            self._begun[slot] = admission
        self._pending.clear()
