"""A packer over made-up programs and destinations, with the staging that it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod

import numpy as np

from helios.contract import decode
from helios.contract.enums import Indexing, Operation, ValueSource
from helios.contract.model import (
    GraphContract,
    PageTableView,
    PendingToken,
    PreparedContract,
    ValueBinding,
)
from helios.runtime.device import MemoryPlan, PlannedBuffer
from helios.runtime.manifest import (
    Buffer,
    BufferClass,
    DeltaDestination,
    Destination,
    DType,
    LeadingCount,
    Manifest,
    Packing,
    Program,
    StagedDestination,
)
from helios.runtime.packing import Packer
from helios.runtime.rounds import LaneAdmission, LaneWork, SamplingParameters
from tests.contract.sample import PAGE_TOKENS, sample_contract

SLOTS, CACHE_PAGES, SNAPSHOTS = 5, 40, 3
CONTEXT_TOKENS, SAMPLED_TOKENS, INPUT_TOKENS = 24, 50, 52
HISTOGRAM_TOKENS, MASK_WORDS, FEATURE_SLOTS = 45, 2, 4
PAGES = CONTEXT_TOKENS // PAGE_TOKENS
UNTOUCHED = 0x4D


@dataclass(frozen=True)
class Graph:
    """A program with its bindings; the extents are B, D, W and P."""

    operation: Operation
    bindings: tuple[ValueBinding, ...]
    lanes: int = 4
    draft_tokens: int = 0
    target_tokens: int = 1
    packed_tokens: int = 12
    state_rows: int = 1
    pending: PendingToken | None = None
    name: str = "p"


@dataclass(frozen=True)
class Staged:
    """A staged destination: `shape` is without the rows where there is one for each slot."""

    dtype: DType
    shape: tuple[int, ...]
    by_slot: bool = False


@dataclass(frozen=True)
class Delta:
    """A delta destination: a table by name, of rows so long, and the entries of its staging."""

    table: str
    row: int
    entries: int
    dtype: DType = DType.I32


@dataclass
class Bench:
    """A packer and the bytes of each INPUT buffer, by name and frame."""

    packer: Packer
    staging: dict[tuple[str, int], np.ndarray]
    shapes: Mapping[str, tuple[DType, tuple[int, ...]]]

    def elements(self, name: str, frame: int = 0) -> np.ndarray:
        """A buffer's values, in its shape."""
        kinds = {DType.F32: np.float32, DType.U32: np.uint32, DType.I32: np.int32}
        dtype, shape = self.shapes[name]
        return self.staging[name, frame].view(kinds[dtype]).reshape(shape)


def bind(
    destination: str,
    source: ValueSource,
    indexing: Indexing,
    *,
    offset: int = 0,
    padding: int = 0,
    constant: int = 0,
    tensor: str = "",
) -> ValueBinding:
    return ValueBinding(destination, source, indexing, offset, padding, constant, tensor)


NBYTES = {DType.U8: 1, DType.I8: 1, DType.I64: 8, DType.U64: 8, DType.F16: 2, DType.BF16: 2}


@dataclass
class _Parts:
    buffers: list[PlannedBuffer] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)

    def add(
        self, name: str, dtype: DType, *shape: int, state: bool = False, slots: bool = False
    ) -> int:
        if name not in self.index:
            self.index[name] = len(self.buffers)
            kind = BufferClass.STATE if state else BufferClass.INPUT
            leading = LeadingCount.REQUEST_SLOTS if slots else LeadingCount.FIXED
            nbytes = prod(shape) * NBYTES.get(dtype, 4)
            buffer = Buffer(name, kind, dtype, Packing.PLAIN, leading, shape, nbytes, 0, "")
            whole = (SLOTS, *shape) if slots else shape
            self.buffers.append(PlannedBuffer(buffer, whole, prod(whole) * NBYTES.get(dtype, 4)))
        return self.index[name]


@cache
def _sample() -> PreparedContract:
    return decode(sample_contract())


def packing_contract(
    graphs: Sequence[Graph], views: Sequence[PageTableView] = ()
) -> PreparedContract:
    """The sample contract with these graphs and small numbers everywhere."""
    contract = _sample()
    model = contract.model
    assert model.vision is not None
    made = [
        GraphContract(
            graph.name,
            graph.operation,
            graph.bindings,
            (),
            (),
            graph.pending,
            None,
            graph.state_rows,
            0,
        )
        for graph in graphs
    ]
    return replace(
        contract,
        max_context_tokens=CONTEXT_TOKENS,
        model=replace(
            model,
            graphs=tuple(made),
            cache=replace(model.cache, page_tables=tuple(views)),
            vision=replace(model.vision, feature_slots=FEATURE_SLOTS),
            vocabulary=replace(
                model.vocabulary,
                sampled_tokens=SAMPLED_TOKENS,
                histogram_tokens=HISTOGRAM_TOKENS,
                mask_words=MASK_WORDS,
            ),
            input_vocabulary=replace(model.input_vocabulary, input_tokens=INPUT_TOKENS),
        ),
    )


def bench(
    graphs: Sequence[Graph],
    destinations: Mapping[str, Staged | Delta],
    *,
    views: Sequence[PageTableView] | None = None,
    selected: Sequence[str] | None = None,
    state_rows: int | None = None,
) -> Bench:
    """A packer of the graphs in `selected` (all of them). Without `views`, each page table begins
    at its rows' first element. `state_rows` are those backed for snapshots and slots."""
    parts = _Parts()
    made: dict[str, Destination] = {}
    for name, wanted in destinations.items():
        if isinstance(wanted, Staged):
            buffer = parts.add(name, wanted.dtype, *wanted.shape, slots=wanted.by_slot)
            made[name] = StagedDestination(name, buffer)
            continue
        made[name] = DeltaDestination(
            name,
            parts.add(wanted.table, DType.I32, wanted.row, state=True, slots=True),
            parts.add(f"{name}.count", DType.I32, 1),
            parts.add(f"{name}.index", wanted.dtype, wanted.entries),
            parts.add(f"{name}.value", wanted.dtype, wanted.entries),
        )
    if views is None:
        pages = {
            b.destination for g in graphs for b in g.bindings if b.source is ValueSource.PAGE_TABLE
        }
        views = [PageTableView(name, name, 0) for name in sorted(pages)]
    contract = packing_contract(graphs, views)
    programs = tuple(
        Program(
            g.name,
            g.operation,
            g.lanes,
            g.draft_tokens,
            g.target_tokens,
            g.packed_tokens,
            (),
            (),
            "",
            (),
            (),
        )
        for g in graphs
    )
    manifest = Manifest(
        "", "cpu", tuple(p.buffer for p in parts.buffers), programs, (), made, {}, 0
    )
    chosen = tuple(p for p in programs if selected is None or p.name in selected)
    per_request = max(g.state_rows for g in graphs if selected is None or g.name in selected)
    rows = (SLOTS + SNAPSHOTS) * per_request if state_rows is None else state_rows
    counts = {LeadingCount.REQUEST_SLOTS: SLOTS, LeadingCount.SNAPSHOT_ROWS: rows}
    staging = {
        (planned.buffer.name, frame): np.full(planned.nbytes, UNTOUCHED, np.uint8)
        for planned in parts.buffers
        for frame in (0, 1)
        if planned.buffer.buffer_class is BufferClass.INPUT
    }
    names = [planned.buffer.name for planned in parts.buffers]
    packer = Packer(
        contract,
        manifest,
        MemoryPlan(tuple(parts.buffers), counts, 0),
        chosen,
        lambda buffer, frame: staging[names[buffer], frame],
        request_slots=SLOTS,
        cache_pages=CACHE_PAGES,
    )
    shapes = {p.buffer.name: (p.buffer.dtype, p.shape) for p in parts.buffers}
    return Bench(packer, staging, shapes)


def lane(slot: int = 0, generation: int = 1, **more: object) -> LaneWork:
    values = {"start": 0, "tokens": (1,), "sample": True, "pages": (), **more}
    return LaneWork(slot=slot, generation=generation, **values)  # type: ignore[arg-type]


def admission(**sampling: object) -> LaneAdmission:
    return LaneAdmission(SamplingParameters(**sampling), 5, 0, ())  # type: ignore[arg-type]
