"""Uploading page-table entries: remembers what a slot's table holds, stages only what is new.

One `PageUpload` serves a delta destination in all programs and frames. A slot's generation
invalidates what is remembered of it. Called by `packing`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from helios.errors import ExecutionError
from helios.runtime.rounds import LaneWork
from helios.runtime.value_sources import Columns

Words = NDArray[np.int32] | NDArray[np.uint32]


class DeltaStaging:
    """A frame's staging of a delta destination: count [1], indices and values [entries]."""

    __slots__ = ("count", "index", "value")

    def __init__(self, count: Words, index: Words, value: Words) -> None:
        self.count = count
        self.index = index
        self.value = value


class PageUpload:
    """What the device's page table holds: per slot the generation and the number of entries."""

    def __init__(
        self, *, request_slots: int, row_entries: int, cache_pages: int, page_tokens: int
    ) -> None:
        self._row_entries = row_entries
        self._cache_pages = cache_pages
        self._page_tokens = page_tokens
        self._generations = [0] * request_slots
        self._uploaded = [0] * request_slots
        self._pending: list[tuple[int, int, int]] = []

    def stage(self, staging: DeltaStaging, lanes: Sequence[LaneWork], columns: Columns) -> None:
        """Writes the new entries of all lanes; `commit` makes them remembered.

        Raises ExecutionError where a page list is too long or too short for the lane's tokens,
        shrank, or names a page that the cache doesn't have.
        """
        generations, uploaded, page_tokens = self._generations, self._uploaded, self._page_tokens
        indices: list[int] = []
        values: list[int] = []
        pending = self._pending
        pending.clear()
        for lane, length in zip(lanes, columns.lengths, strict=True):
            slot, have = lane.slot, len(lane.pages)
            if have * page_tokens < lane.start + length:
                raise ExecutionError(
                    f"{have} pages don't hold {lane.start + length} tokens", where=f"slot {slot}"
                )
            held = uploaded[slot] if generations[slot] == lane.generation else 0
            if held == have and held:
                continue
            if held > have or have > self._row_entries:
                raise ExecutionError(
                    f"the page list has {have} entries, but {held} are uploaded and"
                    f" {self._row_entries} fit",
                    where=f"slot {slot}, generation {lane.generation}",
                )
            first = slot * self._row_entries
            indices.extend(range(first + held, first + have))
            values.extend(lane.pages[held:have])
            pending.append((slot, lane.generation, have))
        count = len(indices)
        if count:
            if min(values) < 0 or max(values) >= self._cache_pages:
                raise ExecutionError(
                    f"a page id is outside [0, {self._cache_pages})", where="page table"
                )
            if count > len(staging.index):
                raise ExecutionError(
                    f"{count} new entries, {len(staging.index)} fit", where="page table"
                )
            staging.index[:count] = indices
            staging.value[:count] = values
        staging.count[0] = count

    def commit(self) -> None:
        """Remembers what the last `stage` wrote: the round that carries it will be submitted."""
        for slot, generation, have in self._pending:
            self._generations[slot] = generation
            self._uploaded[slot] = have
        self._pending.clear()
