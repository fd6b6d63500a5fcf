"""Fills of delta destinations: page tables and admission histograms.

What a table holds is remembered for the table, whichever program and destination sent it, so that
only what is new travels. Called by `packing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import ValueSource
from helios.contract.model import PreparedContract, ValueBinding
from helios.runtime.checks.deltas import check_delta, page_offset
from helios.runtime.checks.places import Place
from helios.runtime.checks.storage import pages_for
from helios.runtime.device import FRAMES, MemoryPlan
from helios.runtime.histogram_upload import HistogramUpload
from helios.runtime.lanes import Columns
from helios.runtime.manifest import DeltaDestination, Manifest
from helios.runtime.page_upload import DeltaStaging, PageUpload
from helios.runtime.rounds import LaneWork
from helios.runtime.sampling_sources import COUNTED
from helios.runtime.value_bounds import Bounds
from helios.runtime.value_writers import Fill, element_type

View = Callable[[int, int], NDArray[np.uint8]]


class DeltaUploads:
    """The uploads of all tables: page tables by their buffer and first element, histograms by
    their buffer and what they count."""

    def __init__(
        self,
        contract: PreparedContract,
        manifest: Manifest,
        plan: MemoryPlan,
        view: View,
        *,
        request_slots: int,
        cache_pages: int,
    ) -> None:
        self._contract = contract
        self._manifest = manifest
        self._plan = plan
        self._view = view
        self._request_slots = request_slots
        self._cache_pages = cache_pages
        self._pages: dict[tuple[int, int], PageUpload] = {}
        self._histograms: dict[tuple[int, ValueSource], HistogramUpload] = {}

    def fills(
        self, binding: ValueBinding, at: Place, destination: DeltaDestination, bounds: Bounds
    ) -> list[Fill]:
        """The fills of a binding, one a frame. Raises ContractError at the binding's place where
        source and table don't go together or staging doesn't hold what a round may send."""
        check_delta(binding, at, destination, self._manifest, bounds)
        staging = [self._staging(destination, frame) for frame in range(FRAMES)]
        if binding.source is ValueSource.PAGE_TABLE:
            pages = self._page_upload(binding, destination)
            return [_page_fill(binding, pages, frame) for frame in staging]
        counted = COUNTED[binding.source]
        histograms = self._histograms.setdefault(
            (destination.target, binding.source),
            HistogramUpload(counted, request_slots=self._request_slots),
        )
        return [_histogram_fill(binding, histograms, frame, bounds) for frame in staging]

    def _staging(self, destination: DeltaDestination, frame: int) -> DeltaStaging:
        count, index, value = (
            self._view(buffer, frame).view(element_type(self._plan.buffers[buffer].buffer.dtype))
            for buffer in (destination.count, destination.index, destination.value)
        )
        return DeltaStaging(count, index, value)

    def _page_upload(self, binding: ValueBinding, destination: DeltaDestination) -> PageUpload:
        first = page_offset(binding.destination, self._contract, self._manifest)
        key = destination.target, first
        if key not in self._pages:
            model = self._contract.model
            upload = PageUpload(
                request_slots=self._request_slots,
                row_entries=self._plan.buffers[destination.target].shape[1],
                page_offset=first,
                capacity=pages_for(self._contract.max_context_tokens, model.cache.page_tokens),
                cache_pages=self._cache_pages,
                page_tokens=model.cache.page_tokens,
            )
            self._pages[key] = upload
        return self._pages[key]


def _never(lane: LaneWork, columns: Columns) -> None:
    """Uploads name the lane themselves."""


def _page_fill(binding: ValueBinding, upload: PageUpload, staging: DeltaStaging) -> Fill:
    def write(lanes: Sequence[LaneWork], columns: Columns) -> None:
        upload.stage(staging, lanes, columns)

    return Fill(binding.destination, write, _never, upload.commit)


def _histogram_fill(
    binding: ValueBinding, upload: HistogramUpload, staging: DeltaStaging, bounds: Bounds
) -> Fill:
    def write(lanes: Sequence[LaneWork], columns: Columns) -> None:
        upload.stage(staging, lanes, bounds)

    return Fill(binding.destination, write, _never, upload.commit)
