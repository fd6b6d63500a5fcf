"""Writes a round's values into a frame's staging, as the contract's bindings say.

Sources, types, extents and indexing are resolved once, at start-up, into one list of functions
for each (program, frame) over views of the staging buffers; packing a round only calls them.
A binding that can't be served is refused then, by name: no input is ever left silently unset.
`ModelRuntime` is the caller; what the sources mean is in `value_sources`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import Operation, ValueSource
from helios.contract.fields import refuse
from helios.contract.model import GraphContract, PreparedContract, ValueBinding
from helios.errors import ExecutionError
from helios.runtime.checks.bindings import Rows
from helios.runtime.checks.places import Place, graph_place
from helios.runtime.checks.storage import check_page_bindings
from helios.runtime.device import FRAMES, MemoryPlan
from helios.runtime.manifest import DeltaDestination, DType, Manifest, Program
from helios.runtime.page_upload import DeltaStaging, PageUpload
from helios.runtime.rounds import LaneWork
from helios.runtime.value_sources import SOURCES, Columns, query_lengths
from helios.runtime.value_writers import Fill, element_type, staged_fill

View = Callable[[int, int], NDArray[np.uint8]]


@dataclass(frozen=True, slots=True)
class PackedProgram:
    """A program's capacities and, for each frame, its fills with their destinations' names."""

    name: str
    operation: Operation
    lanes: int
    tokens: int
    admission: bool
    fills: tuple[tuple[tuple[str, Fill], ...], ...]
    uploads: tuple[PageUpload, ...]


class Packer:
    """All programs' fills. `view(buffer, frame)` gives the staging bytes of an INPUT buffer."""

    def __init__(
        self,
        contract: PreparedContract,
        manifest: Manifest,
        plan: MemoryPlan,
        programs: Sequence[Program],
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
        self._uploads: dict[str, PageUpload] = {}
        graphs = {graph.name: (i, graph) for i, graph in enumerate(contract.model.graphs)}
        self._programs = [self._resolve(program, *graphs[program.name]) for program in programs]

    def pack(self, program: int, frame: int, lanes: Sequence[LaneWork]) -> None:
        """Writes a round. Raises ExecutionError, leaving nothing remembered, if a value doesn't
        fit; the round must then not be submitted."""
        packed = self._programs[program]
        columns = self._columns(packed, lanes)
        name = ""
        try:
            for name, fill in packed.fills[frame]:  # noqa: B007 - the handler reads it
                fill(lanes, columns)
        except (OverflowError, TypeError, ValueError) as error:
            raise ExecutionError(str(error), where=f"{packed.name}, input {name}") from error
        for upload in packed.uploads:
            upload.commit()

    def _columns(self, packed: PackedProgram, lanes: Sequence[LaneWork]) -> Columns:
        count = len(lanes)
        if not 1 <= count <= packed.lanes:
            raise ExecutionError(f"{count} lanes, 1 to {packed.lanes} fit", where=packed.name)
        slots = [lane.slot for lane in lanes]
        if min(slots) < 0 or max(slots) >= self._request_slots or len(set(slots)) != count:
            raise ExecutionError(
                f"slots {slots} are not distinct and in [0, {self._request_slots})",
                where=packed.name,
            )
        columns = Columns(slots, query_lengths(packed.operation, lanes))
        if columns.total > packed.tokens:
            raise ExecutionError(f"{columns.total} tokens, {packed.tokens} fit", where=packed.name)
        if packed.operation is Operation.PREFILL and min(columns.lengths) < 1:
            raise ExecutionError("a lane has no tokens", where=packed.name)
        if packed.admission and any(lane.admission is None for lane in lanes):
            raise ExecutionError("a lane has no admission", where=packed.name)
        return columns

    def _resolve(self, program: Program, index: int, graph: GraphContract) -> PackedProgram:
        at = graph_place(index, graph)
        if graph.pending_token is not None and graph.pending_token.host_binding is not None:
            at.refuse(
                "pending_token.host_binding",
                "this Helios feeds no pending tokens from the host yet",
            )
        check_page_bindings(graph, at, self._contract)
        uploads: list[PageUpload] = []
        fills: list[list[tuple[str, Fill]]] = [[] for _ in range(FRAMES)]
        for number, binding in enumerate(graph.bindings):
            place = at.within(f"bindings[{number}]")
            if binding.source is ValueSource.PAGE_TABLE:
                upload, per_frame = self._page_fills(binding, place)
                uploads.append(upload)
            else:
                per_frame = self._staged_fills(binding, program, place)
            for frame in range(FRAMES):
                fills[frame].append((binding.destination, per_frame[frame]))
        return PackedProgram(
            name=program.name,
            operation=program.operation,
            lanes=min(program.batch_capacity, self._request_slots),
            tokens=program.packed_token_capacity or program.batch_capacity,
            admission=any(
                SOURCES[binding.source].admission
                for binding in graph.bindings
                if binding.source in SOURCES
            ),
            fills=tuple(tuple(frame) for frame in fills),
            uploads=tuple(uploads),
        )

    def _staged_fills(self, binding: ValueBinding, program: Program, at: Place) -> list[Fill]:
        destination = self._manifest.destinations[binding.destination]
        if isinstance(destination, DeltaDestination):
            at.refuse("source", f"{binding.source.name} can't be sent as a delta")
        planned = self._plan.buffers[destination.buffer]
        rows = Rows(program.batch_capacity, program.packed_token_capacity, self._request_slots)
        return [
            staged_fill(binding, at, self._view(destination.buffer, frame), planned, rows)
            for frame in range(FRAMES)
        ]

    def _page_fills(self, binding: ValueBinding, at: Place) -> tuple[PageUpload, list[Fill]]:
        destination = self._manifest.destinations[binding.destination]
        if not isinstance(destination, DeltaDestination):
            at.refuse("destination", "a page table must be a delta destination")
        self._refuse_shifted(binding)
        buffers = self._plan.buffers
        upload = self._uploads.get(binding.destination)
        if upload is None:
            shape = buffers[destination.target].shape
            if len(shape) != 2 or shape[0] < self._request_slots:
                at.refuse(
                    "destination",
                    f"its target has shape {shape}, not a row for each of"
                    f" {self._request_slots} slots",
                )
            upload = PageUpload(
                request_slots=self._request_slots,
                row_entries=shape[1],
                cache_pages=self._cache_pages,
                page_tokens=self._contract.model.cache.page_tokens,
            )
            self._uploads[binding.destination] = upload

        def words(buffer: int, frame: int) -> NDArray[np.int32]:
            dtype: DType = buffers[buffer].buffer.dtype
            return self._view(buffer, frame).view(element_type(dtype))

        fills = [
            _page_fill(
                upload,
                DeltaStaging(
                    words(destination.count, frame),
                    words(destination.index, frame),
                    words(destination.value, frame),
                ),
            )
            for frame in range(FRAMES)
        ]
        return upload, fills

    def _refuse_shifted(self, binding: ValueBinding) -> None:
        for number, view in enumerate(self._contract.model.cache.page_tables):
            if view.destination == binding.destination and view.page_offset:
                refuse(
                    f"model.cache.page_tables[{number}].page_offset",
                    "this Helios shifts no page tables yet",
                )


def _page_fill(upload: PageUpload, staging: DeltaStaging) -> Fill:
    def fill(lanes: Sequence[LaneWork], columns: Columns) -> None:
        upload.stage(staging, lanes, columns)

    return fill
