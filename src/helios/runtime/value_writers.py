"""Writes one value source into one staged buffer: the five indexings over typed views.

`checks.bindings` has made sure that they go together, so that the returned function only reads
values and assigns slices. Called by `packing`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import Indexing, ValueSource
from helios.contract.model import ValueBinding
from helios.runtime.array_rows import ArraySource, fitting
from helios.runtime.array_sources import NEUTRAL
from helios.runtime.checks.bindings import ELEMENT_TYPES, resolve, row_elements
from helios.runtime.checks.places import Place
from helios.runtime.device import PlannedBuffer
from helios.runtime.lanes import EXTRAS, Columns
from helios.runtime.manifest import DType
from helios.runtime.rounds import LaneWork
from helios.runtime.value_bounds import Bounds
from helios.runtime.value_sources import Scope, Source

Write = Callable[[Sequence[LaneWork], Columns], None]


class Fill(NamedTuple):
    """A binding's part of packing. `write` stages the values of a round and raises where one
    doesn't fit; `probe` then finds the lane: it raises for a lane whose own values don't. `commit`,
    if any, is called when the whole round is staged: only then may anything be remembered."""

    destination: str
    write: Write
    probe: Callable[[LaneWork, Columns], None]
    commit: Callable[[], None] | None = None


def element_type(dtype: DType) -> Any:
    """The numpy type of a buffer's elements; only of types that can be staged."""
    return ELEMENT_TYPES[dtype]


class HeldRows:
    """For each row of a staging buffer the neutral array that it holds, None where it holds
    another; the first `leading` of them hold that of who wrote them last."""

    __slots__ = ("leading", "rows")

    def __init__(self, rows: int) -> None:
        self.rows: list[Any] = [None] * rows
        self.leading = 0


def staged_fill(
    binding: ValueBinding,
    at: Place,
    staging: NDArray[np.uint8],
    planned: PlannedBuffer,
    bounds: Bounds,
    held: HeldRows | None = None,
) -> Fill:
    """The fill that writes a round's values of `binding` into `staging`. `held` is shared by all
    fills of the buffer, where each of them keeps it: then rows that stay neutral aren't written
    again. Raises ContractError at the binding's place where source, type, extent and indexing don't
    go together."""
    source = resolve(binding, at, planned.buffer, bounds)
    typed: NDArray[Any] = staging.view(element_type(planned.buffer.dtype))
    columns = row_elements(planned.buffer)
    if isinstance(source, ArraySource):
        return _array_fill(binding, source, typed.reshape(-1, columns), bounds, held)
    listed = columns != 1 or binding.source is ValueSource.EOS_IDS  # what the reader returns
    rows = typed.reshape(-1, columns) if listed else typed

    def probe(lane: LaneWork, own: Columns) -> None:
        count = own.total if source.scope is Scope.TOKEN else 1
        np.empty((count, *rows.shape[1:]), rows.dtype)[:] = _checked(
            source.read((lane,), own), rows.dtype
        )

    return Fill(binding.destination, _write(binding, source, rows, bounds.lanes), probe)


def _checked(values: Any, element: np.dtype[Any]) -> Any:
    """What a source has read, if it fits: numpy looks at lists by itself, and cuts arrays."""
    if not isinstance(values, np.ndarray | array):
        return values
    read = np.asarray(values)
    return read if np.can_cast(read.dtype, element) else fitting(read, element)


def _write(binding: ValueBinding, source: Source, rows: NDArray[Any], batch_capacity: int) -> Write:
    read, indexing = source.read, binding.indexing
    if indexing is Indexing.SCALAR:

        def write_scalar(lanes: Sequence[LaneWork], columns: Columns) -> None:
            rows[0] = read(lanes, columns)

        return write_scalar
    if indexing is Indexing.PACKED_TOKEN:
        return _write_packed(source, rows)
    if indexing is Indexing.ACTIVE_ROW:

        def write_active(lanes: Sequence[LaneWork], columns: Columns) -> None:
            rows[: len(lanes)] = read(lanes, columns)

        return write_active
    if indexing is Indexing.PHYSICAL_REQUEST_ROW:

        def write_physical(lanes: Sequence[LaneWork], columns: Columns) -> None:
            rows[columns.slots] = read(lanes, columns)

        return write_physical
    padding = binding.padding

    def write_submission(lanes: Sequence[LaneWork], columns: Columns) -> None:
        count = len(lanes)
        rows[:count] = read(lanes, columns)
        rows[count:batch_capacity] = padding

    return write_submission


def _write_packed(source: Source, rows: NDArray[Any]) -> Write:
    read = source.read
    if source.scope is Scope.LANE:

        def write_repeated(lanes: Sequence[LaneWork], columns: Columns) -> None:
            values = np.empty((len(lanes), *rows.shape[1:]), rows.dtype)
            values[:] = read(lanes, columns)
            rows[: columns.total] = np.repeat(values, columns.lengths, axis=0)

        return write_repeated

    def write_tokens(lanes: Sequence[LaneWork], columns: Columns) -> None:
        rows[: columns.total] = _checked(read(lanes, columns), rows.dtype)

    return write_tokens


def _array_fill(
    binding: ValueBinding,
    source: ArraySource,
    rows: NDArray[Any],
    bounds: Bounds,
    held: HeldRows | None,
) -> Fill:
    row, indexing, neutral = source.row, binding.indexing, source.neutral
    by_slot = indexing is Indexing.PHYSICAL_REQUEST_ROW

    def probe(lane: LaneWork, own: Columns) -> None:
        row(lane, own.total)

    def write(lanes: Sequence[LaneWork], columns: Columns) -> None:
        first = 0
        for index, (lane, length) in enumerate(zip(lanes, columns.lengths, strict=True)):
            if indexing is Indexing.PACKED_TOKEN:
                rows[first : first + length] = row(lane, length)
                first += length
            else:
                rows[lane.slot if by_slot else index] = row(lane, length)
        if indexing is Indexing.SUBMISSION_ROW:
            rows[len(lanes) : bounds.lanes] = binding.padding

    if held is None or neutral is None or indexing not in _ROW_OF_ITS_OWN:
        return Fill(binding.destination, write, probe)

    held_rows = held.rows

    def write_changes(lanes: Sequence[LaneWork], columns: Columns) -> None:
        places = columns.slots if by_slot else range(len(lanes))
        for place, lane, length in zip(places, lanes, columns.lengths, strict=True):
            value = row(lane, length)
            if value is neutral:
                if held_rows[place] is neutral:
                    continue
                held_rows[place] = neutral
            else:
                held_rows[place] = None
            held.leading = min(held.leading, place)
            rows[place] = value

    if by_slot or not source.from_extras:
        return Fill(binding.destination, write_changes, probe)

    def write_extras(lanes: Sequence[LaneWork], columns: Columns) -> None:
        """Most rounds have no lane with something to say, and find the rows as they need them."""
        plain = not any(map(_EXTRAS, lanes))
        if plain and held.leading >= len(lanes):
            return
        write_changes(lanes, columns)
        if plain:
            held.leading = len(lanes)

    return Fill(binding.destination, write_extras, probe)


_EXTRAS: Final = itemgetter(EXTRAS)
_ROW_OF_ITS_OWN: Final = (Indexing.ACTIVE_ROW, Indexing.PHYSICAL_REQUEST_ROW)


def keeps_held_rows(binding: ValueBinding) -> bool:
    """Whether the binding's fill keeps `HeldRows`, whatever its destination."""
    return binding.source in NEUTRAL and binding.indexing in _ROW_OF_ITS_OWN
