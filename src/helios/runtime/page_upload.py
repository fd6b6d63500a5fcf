"""Uploading page-table entries: remembers what a slot's table holds, stages only what is new.

One `PageUpload` serves one place of one table in all programs and frames. A slot's generation
invalidates what is remembered of it. Called by `delta_uploads`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from helios.runtime.lanes import PAGES, START, Columns
from helios.runtime.rounds import LaneWork

Words = NDArray[np.int32] | NDArray[np.uint32]


class DeltaStaging:
    """A frame's staging of a delta destination: count [1], indices and values [entries]."""

    __slots__ = ("count", "index", "value")

    def __init__(self, count: Words, index: Words, value: Words) -> None:
        self.count = count
        self.index = index
        self.value = value


class LaneValueError(ValueError):
    """A lane's value doesn't fit; `lane` is its place in the round."""

    def __init__(self, lane: int, what: str) -> None:
        super().__init__(what)
        self.lane = lane


class PageUpload:
    """What a page table holds: per slot the generation and the number of entries. Page i of a slot
    is at element `page_offset` + i of its row, which has `row_entries`; a slot has at most
    `capacity` pages."""

    def __init__(
        self,
        *,
        request_slots: int,
        row_entries: int,
        page_offset: int,
        capacity: int,
        cache_pages: int,
        page_tokens: int,
    ) -> None:
        self._row_entries = row_entries
        self._page_offset = page_offset
        self._capacity = capacity
        self._cache_pages = cache_pages
        self._page_tokens = page_tokens
        self._generations = [0] * request_slots
        self._uploaded = [0] * request_slots
        self._pending: list[tuple[int, int, int]] = []

    def stage(self, staging: DeltaStaging, lanes: Sequence[LaneWork], columns: Columns) -> None:
        """Writes the new entries of all lanes; `commit` makes them remembered.

        Raises LaneValueError where a page list is too long or too short for the lane's tokens,
        shrank, or names a page that the cache doesn't have.
        """
        generations, uploaded, page_tokens = self._generations, self._uploaded, self._page_tokens
        indices: list[int] = []
        values: list[int] = []
        pending = self._pending
        pending.clear()
        for lane, slot, generation, length in zip(
            lanes, columns.slots, columns.generations, columns.lengths, strict=True
        ):
            have, end = len(lane[PAGES]), lane[START] + length
            current = generations[slot] == generation
            if current and uploaded[slot] == have and end <= have * page_tokens:
                continue
            held = uploaded[slot] if current else 0
            if end > have * page_tokens or not held <= have <= self._capacity:
                self._refuse(lanes, columns, slot)
            first = slot * self._row_entries + self._page_offset
            indices.extend(range(first + held, first + have))
            values.extend(lane.pages[held:have])
            pending.append((slot, generation, have))
        count = len(indices)
        if count:
            if min(values) < 0 or max(values) >= self._cache_pages:
                self._refuse_ids(lanes)
            # Staging for whole contexts of all lanes was checked at start-up.
            staging.index[:count] = indices
            staging.value[:count] = values
        staging.count[0] = count

    def commit(self) -> None:
        """Remembers what the last `stage` wrote: the round that carries it will be submitted."""
        for slot, generation, have in self._pending:
            self._generations[slot] = generation
            self._uploaded[slot] = have
        self._pending.clear()

    def _held(self, lane: LaneWork) -> int:
        """Entries of the lane that the table has."""
        current = self._generations[lane.slot] == lane.generation
        return self._uploaded[lane.slot] if current else 0

    def _refuse(self, lanes: Sequence[LaneWork], columns: Columns, slot: int) -> NoReturn:
        index = columns.slots.index(slot)
        lane = lanes[index]
        have, tokens = len(lane.pages), lane.start + columns.lengths[index]
        if have * self._page_tokens < tokens:
            raise LaneValueError(index, f"has {have} pages, which don't hold {tokens} tokens")
        raise LaneValueError(
            index,
            f"has {have} pages, but {self._held(lane)} are uploaded and {self._capacity} fit",
        )

    def _refuse_ids(self, lanes: Sequence[LaneWork]) -> NoReturn:
        pages = range(self._cache_pages)
        for index, lane in enumerate(lanes):
            wrong = [page for page in lane.pages[self._held(lane) :] if page not in pages]
            if wrong:
                raise LaneValueError(index, f"names page {wrong[0]}, there are {len(pages)}")
        raise AssertionError("no lane names a page outside the cache")
