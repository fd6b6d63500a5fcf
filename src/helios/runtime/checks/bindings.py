"""Value bindings against transport destinations: types, extents, indexing, constants.

One function resolves a binding of a staged destination; it is used for every graph of a contract
before anything is loaded (`manifest_checks`), and again by `packing` for the selected ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from helios.contract.enums import Indexing, ValueSource
from helios.contract.fields import INT32_MAX
from helios.contract.model import GraphContract, PreparedContract, ValueBinding
from helios.runtime.checks.places import Place
from helios.runtime.manifest import (
    Buffer,
    DeltaDestination,
    DType,
    LeadingCount,
    Manifest,
    Program,
)
from helios.runtime.value_sources import SOURCES, Read, Scope, Source, eos_rows

ELEMENT_TYPES: Final[dict[DType, Any]] = {
    DType.U8: np.uint8,
    DType.I8: np.int8,
    DType.I32: np.int32,
    DType.U32: np.uint32,
    DType.I64: np.int64,
    DType.U64: np.uint64,
    DType.F32: np.float32,
}


@dataclass(frozen=True, slots=True)
class Rows:
    """Most rows of each kind that a program's bindings index."""

    batch_capacity: int
    packed_capacity: int
    request_slots: int

    def needed(self, indexing: Indexing) -> int:
        """Rows that a destination of this indexing must have."""
        return {
            Indexing.SCALAR: 1,
            Indexing.SUBMISSION_ROW: self.batch_capacity,
            Indexing.ACTIVE_ROW: min(self.batch_capacity, self.request_slots),
            Indexing.PHYSICAL_REQUEST_ROW: self.request_slots,
            Indexing.PACKED_TOKEN: self.packed_capacity,
        }[indexing]


def check_bindings(
    graph: GraphContract,
    program: Program,
    at: Place,
    manifest: Manifest,
    contract: PreparedContract,
) -> None:
    """Every binding of a graph: a destination that the program reads, filled from a source that
    goes with it. What this Helios can't supply is refused when such a graph is selected."""
    placed = [(at.within(f"bindings[{i}]"), binding) for i, binding in enumerate(graph.bindings)]
    if graph.pending_token is not None and graph.pending_token.host_binding is not None:
        host = graph.pending_token.host_binding
        placed.append((at.within("pending_token.host_binding"), host))
    inputs = set(program.inputs)
    rows = Rows(program.batch_capacity, program.packed_token_capacity, contract.max_active)
    for place, binding in placed:
        name = binding.destination
        destination = manifest.destinations.get(name)
        if destination is None:
            place.refuse("destination", f"no transport destination {name!r}")
        if name not in inputs:
            place.refuse("destination", f"{name!r} is no input of the program {program.name!r}")
        if isinstance(destination, DeltaDestination):
            if binding.source is not ValueSource.PAGE_TABLE:
                place.refuse("source", f"{binding.source.name} can't be sent as a delta")
        elif binding.source is ValueSource.PAGE_TABLE:
            place.refuse("destination", "a page table must be a delta destination")
        elif binding.source is ValueSource.CONSTANT or binding.source in SOURCES:
            buffer = manifest.buffers[destination.buffer]
            resolve(binding, place, buffer, rows)
            _check_eos_ids(binding, place, buffer, len(contract.model.frontend.eos_ids))
    # Staging is shared by all programs: a delta that nobody fills would be applied again.
    bound = {binding.destination for _, binding in placed}
    for name in program.inputs:
        if isinstance(manifest.destinations[name], DeltaDestination) and name not in bound:
            at.refuse("bindings", f"none fills {name!r}, whose entries the program applies")


def resolve(binding: ValueBinding, at: Place, buffer: Buffer, rows: Rows) -> Source:
    """The source of a binding to a staged buffer, with constant or offset applied. Raises
    ContractError where source, type, extent and indexing don't go together."""
    source = _source(binding, at, buffer)
    columns = _columns(buffer)
    if columns != source.columns:
        at.refuse(
            "destination",
            f"a row of {buffer.name!r} has {columns} elements, {binding.source.name} has"
            f" {source.columns}",
        )
    fixed = buffer.leading is LeadingCount.FIXED
    available = buffer.shape[0] if fixed else rows.request_slots
    if available < rows.needed(binding.indexing):
        at.refuse(
            "destination",
            f"{buffer.name!r} has {available} rows, {binding.indexing.name} needs"
            f" {rows.needed(binding.indexing)}",
        )
    _check_scope(source, binding, at)
    if binding.indexing is Indexing.SUBMISSION_ROW and not source.real:
        _check_fits(binding.padding, buffer.dtype, at, "padding")
    return source


def _check_eos_ids(binding: ValueBinding, at: Place, buffer: Buffer, count: int) -> None:
    """Every request brings all of the contract's end-of-sequence ids."""
    if binding.source is ValueSource.EOS_IDS and count > _columns(buffer):
        at.refuse(
            "destination",
            f"a row of {buffer.name!r} has {_columns(buffer)} elements, and there are {count}"
            " end-of-sequence ids",
        )


def _columns(buffer: Buffer) -> int:
    """Elements of one row; the leading count isn't in the shape where it is symbolic."""
    fixed = buffer.leading is LeadingCount.FIXED
    return prod(buffer.shape[1:] if fixed else buffer.shape)


def _source(binding: ValueBinding, at: Place, buffer: Buffer) -> Source:
    dtype, name = buffer.dtype, binding.source.name
    if dtype not in ELEMENT_TYPES:
        at.refuse("destination", f"{dtype.name} elements can't be staged")
    if binding.source is ValueSource.CONSTANT:
        value = binding.constant + binding.offset
        _check_fits(value, dtype, at, "constant")
        return Source(Scope.ROUND, lambda lanes, columns: value, real=dtype is DType.F32)
    source = SOURCES.get(binding.source)
    if source is None:
        at.refuse("source", f"this Helios supplies no {name} yet")
    if source.real != (dtype is DType.F32):
        kind = "real" if source.real else "integer"
        at.refuse("destination", f"{name} is {kind}, but the buffer holds {dtype.name}")
    if binding.offset and (source.real or source.columns != 1):
        at.refuse("offset", f"{name} takes no offset")
    if binding.source is ValueSource.EOS_IDS:
        columns = _columns(buffer)
        return Source(Scope.LANE, eos_rows(columns), columns=columns, admission=True)
    if not binding.offset:
        return source
    _check_offset(binding.offset, dtype, at)
    return Source(source.scope, _shifted(source, binding.offset))


def _shifted(source: Source, offset: int) -> Read:
    read = source.read
    if source.scope is Scope.ROUND:
        return lambda lanes, columns: read(lanes, columns) + offset
    return lambda lanes, columns: [value + offset for value in read(lanes, columns)]


def _check_scope(source: Source, binding: ValueBinding, at: Place) -> None:
    """A value for each lane or token has no single place, nor a token's one for each lane."""
    allowed: tuple[Scope, ...] = (Scope.ROUND, Scope.LANE, Scope.TOKEN)
    if binding.indexing is Indexing.SCALAR:
        allowed = (Scope.ROUND,)
    elif binding.indexing is not Indexing.PACKED_TOKEN:
        allowed = (Scope.ROUND, Scope.LANE)
    if source.scope not in allowed:
        at.refuse(
            "indexing",
            f"{binding.source.name} has a value for each {source.scope.value}, which"
            f" {binding.indexing.name} can't index",
        )


def _check_offset(offset: int, dtype: DType, at: Place) -> None:
    """Some value of a source, none of which is negative or over 31 bits, must fit with it."""
    limits = np.iinfo(ELEMENT_TYPES[dtype])
    if offset > limits.max or offset + INT32_MAX < limits.min:
        at.refuse("offset", f"no value fits {dtype.name} with {offset} added")


def _check_fits(value: int, dtype: DType, at: Place, field: str) -> None:
    if dtype is DType.F32:
        return
    limits = np.iinfo(ELEMENT_TYPES[dtype])
    if not limits.min <= value <= limits.max:
        at.refuse(field, f"{value} doesn't fit {dtype.name}")
