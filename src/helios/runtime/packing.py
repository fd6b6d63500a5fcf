"""Writes a round's values into a frame's staging, as the contract's bindings say.

Sources, types, extents and indexing are resolved once, at start-up, into one list of fills for
each (program, frame) over views of the staging buffers; packing a round only calls them. A binding
that can't be served is refused then, by name: no input is ever left silently unset. `ModelRuntime`
is the caller; what the sources mean is in `value_sources` and `array_sources`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from helios.contract.enums import Operation
from helios.contract.model import GraphContract, PreparedContract, ValueBinding
from helios.dataclass import dataclass
from helios.errors import ExecutionError
from helios.runtime.checks.bindings import allots_lengths, check_lengths, placed_bindings
from helios.runtime.checks.deltas import check_delta_places
from helios.runtime.checks.places import Place, graph_place
from helios.runtime.checks.storage import check_page_bindings
from helios.runtime.delta_uploads import DeltaUploads, View
from helios.runtime.device import FRAMES, MemoryPlan
from helios.runtime.lanes import PROMPTS, Columns, query_lengths
from helios.runtime.manifest import (
    DeltaDestination,
    LeadingCount,
    Manifest,
    Program,
    StagedDestination,
)
from helios.runtime.page_upload import LaneValueError
from helios.runtime.rounds import LaneWork
from helios.runtime.state_rows import StateRows, rows_per_request
from helios.runtime.value_bounds import Bounds, bounds_of
from helios.runtime.value_writers import Fill, HeldRows, keeps_held_rows, staged_fill

_UNFIT = (OverflowError, TypeError, ValueError)
# Program, frame and lanes that have been packed ahead.
_NOTHING_AHEAD: Final[tuple[int, int, Sequence[LaneWork]]] = (-1, -1, ())


@dataclass(frozen=True, slots=True)
class PackedProgram:
    """A program's fills for each frame, and what a round of it may be: `tokens` in all (0 where the
    program allots them itself), at least `least` a lane and at most `most`."""

    name: str
    operation: Operation
    lanes: int
    tokens: int
    least: int
    most: int
    fills: tuple[tuple[Fill, ...], ...]
    commits: tuple[tuple[Callable[[], None], ...], ...]


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
        self._slots = frozenset(range(request_slots))
        self._rows = _state_rows(contract, plan, programs, request_slots)
        self._deltas = DeltaUploads(
            contract,
            manifest,
            plan,
            view,
            request_slots=request_slots,
            cache_pages=cache_pages,
        )
        graphs = {graph.name: (i, graph) for i, graph in enumerate(contract.model.graphs)}
        self._held = _held_rows(plan, manifest, [graphs[program.name][1] for program in programs])
        self._programs = [self._resolve(program, *graphs[program.name]) for program in programs]
        # What `pack_ahead` has written: program, frame, and the lanes themselves.
        self._ahead = _NOTHING_AHEAD

    def pack(self, program: int, frame: int, lanes: Sequence[LaneWork]) -> None:
        """Writes a round. Raises ExecutionError, naming lane and input, if a value doesn't fit.
        Nothing of such a round is remembered; it must not be submitted."""
        ahead_program, ahead_frame, ahead = self._ahead
        self._ahead = _NOTHING_AHEAD
        if lanes is not ahead or program != ahead_program or frame != ahead_frame:
            self._write(program, frame, lanes)
        for commit in self._programs[program].commits[frame]:
            commit()

    def pack_ahead(self, program: int, frame: int, lanes: Sequence[LaneWork]) -> None:
        """Writes a round that may be packed next: if `pack` is then called with these very lanes,
        nothing is left to write. Nothing is remembered before that, and what doesn't fit is left to
        `pack`, so a round that never comes leaves no trace."""
        self._ahead = _NOTHING_AHEAD
        try:
            self._write(program, frame, lanes)
        except ExecutionError:
            return
        self._ahead = program, frame, lanes

    def _write(self, program: int, frame: int, lanes: Sequence[LaneWork]) -> None:
        packed = self._programs[program]
        columns = self._columns(packed, lanes)
        for fill in packed.fills[frame]:
            try:
                fill.write(lanes, columns)
            except _UNFIT as error:
                _refuse(packed, fill, lanes, columns, error)

    def _columns(self, packed: PackedProgram, lanes: Sequence[LaneWork]) -> Columns:
        """The round's geometry. Raises ExecutionError where the program doesn't take it."""
        count = len(lanes)
        if not 1 <= count <= packed.lanes:
            raise ExecutionError(f"{count} lanes, 1 to {packed.lanes} fit", where=packed.name)
        columns = Columns(lanes, query_lengths(packed.operation, lanes), self._rows)
        distinct = set(columns.slots)
        if len(distinct) != count or not distinct <= self._slots:
            raise ExecutionError(
                f"slots {columns.slots} are not distinct and in [0, {len(self._slots)})",
                where=packed.name,
            )
        if packed.tokens and columns.total > packed.tokens:
            raise ExecutionError(f"{columns.total} tokens, {packed.tokens} fit", where=packed.name)
        if packed.operation is not Operation.DECODE:
            _check_lanes(packed, lanes, columns)
        return columns

    def _resolve(self, program: Program, index: int, graph: GraphContract) -> PackedProgram:
        at = graph_place(index, graph)
        check_page_bindings(graph, at, self._contract)
        check_lengths(graph, at)
        bounds = bounds_of(program, self._contract, self._rows)
        placed = placed_bindings(graph, at)
        check_delta_places(placed, self._contract, self._manifest)
        per_binding = [self._fills(binding, place, bounds) for place, binding in placed]
        fills = tuple(zip(*per_binding, strict=True)) or ((),) * FRAMES
        speculative = program.operation is Operation.SPECULATIVE
        consumes = program.operation in PROMPTS or speculative
        return PackedProgram(
            name=program.name,
            operation=program.operation,
            lanes=bounds.active_lanes,
            tokens=0 if allots_lengths(graph) else bounds.packed_tokens or bounds.lanes,
            least=int(consumes or program.operation is Operation.VISION),
            most=min(bounds.draft_tokens + 1, bounds.target_tokens)
            if speculative
            else max(bounds.packed_tokens, 1),
            fills=fills,
            commits=tuple(
                tuple(fill.commit for fill in frame if fill.commit is not None) for frame in fills
            ),
        )

    def _fills(self, binding: ValueBinding, at: Place, bounds: Bounds) -> list[Fill]:
        """A binding's fills, one a frame."""
        destination = self._manifest.destinations[binding.destination]
        if isinstance(destination, DeltaDestination):
            return self._deltas.fills(binding, at, destination, bounds)
        planned = self._plan.buffers[destination.buffer]
        held = self._held.get(destination.buffer, (None,) * FRAMES)
        return [
            staged_fill(
                binding, at, self._view(destination.buffer, frame), planned, bounds, held[frame]
            )
            for frame in range(FRAMES)
        ]


def _check_lanes(packed: PackedProgram, lanes: Sequence[LaneWork], columns: Columns) -> None:
    lengths = columns.lengths
    if min(lengths) < packed.least or max(lengths) > packed.most:
        wrong = next(i for i, n in enumerate(lengths) if not packed.least <= n <= packed.most)
        raise ExecutionError(
            f"has {lengths[wrong]} tokens, {packed.least} to {packed.most} fit",
            where=_lane_place(packed, wrong, lanes[wrong]),
        )
    if packed.operation is Operation.MIXED:
        *decoding, prompt = lanes
        if not decoding or not prompt.tokens or any(lane.tokens for lane in decoding):
            raise ExecutionError(
                "the last lane, and it alone, must bring a prompt's tokens", where=packed.name
            )


def _lane_place(packed: PackedProgram, index: int, lane: LaneWork) -> str:
    return f"{packed.name}, lane {index} (slot {lane.slot}, generation {lane.generation})"


def _refuse(
    packed: PackedProgram,
    fill: Fill,
    lanes: Sequence[LaneWork],
    columns: Columns,
    error: Exception,
) -> NoReturn:
    """Raises the ExecutionError of a round that a fill couldn't stage: finds the lane."""
    index, found = None, error
    if isinstance(error, LaneValueError):
        index = error.lane
    else:
        for number, (lane, length) in enumerate(zip(lanes, columns.lengths, strict=True)):
            try:
                fill.probe(lane, Columns((lane,), [length], columns.rows))
            except _UNFIT as own:
                index, found = number, own
                break
    where = packed.name if index is None else _lane_place(packed, index, lanes[index])
    raise ExecutionError(str(found), where=f"{where}, input {fill.destination}") from error


def _held_rows(
    plan: MemoryPlan, manifest: Manifest, graphs: Sequence[GraphContract]
) -> dict[int, tuple[HeldRows, ...]]:
    """What the rows of each staging buffer hold, a list a frame; only of buffers all of whose fills
    keep account of it."""
    bound: dict[int, list[ValueBinding]] = {}
    for graph in graphs:
        for binding in graph.bindings:
            destination = manifest.destinations.get(binding.destination)
            if isinstance(destination, StagedDestination):
                bound.setdefault(destination.buffer, []).append(binding)
    return {
        buffer: tuple(HeldRows(plan.buffers[buffer].shape[0]) for _ in range(FRAMES))
        for buffer, bindings in bound.items()
        if all(map(keeps_held_rows, bindings))
    }


def _state_rows(
    contract: PreparedContract, plan: MemoryPlan, programs: Sequence[Program], request_slots: int
) -> StateRows:
    """How the plan's state rows are shared out; without any there are no snapshots."""
    per_request = rows_per_request(contract, programs)
    backed = plan.counts.get(LeadingCount.SNAPSHOT_ROWS, 0)
    snapshots = max(backed // per_request - request_slots, 0)
    return StateRows(request_slots, snapshots, per_request)
