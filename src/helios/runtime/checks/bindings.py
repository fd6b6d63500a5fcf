"""Value bindings against transport destinations: types, extents, indexing, constants.

One function resolves a binding of a staged destination; it is used for every graph of a contract
before anything is loaded (`manifest_checks`), and again by `packing` for the selected ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from helios.contract.enums import Indexing, ValueSource
from helios.contract.model import GraphContract, PreparedContract, ValueBinding
from helios.runtime.array_rows import ArraySource, Destined, refuse_operation
from helios.runtime.array_sources import ARRAYS
from helios.runtime.checks.deltas import DELTAS, check_delta
from helios.runtime.checks.places import Place
from helios.runtime.lanes import Columns
from helios.runtime.manifest import (
    Buffer,
    DeltaDestination,
    DType,
    LeadingCount,
    Manifest,
    Program,
)
from helios.runtime.rounds import LaneWork
from helios.runtime.state_rows import StateRows, rows_per_request
from helios.runtime.value_bounds import Bounds, bounds_of
from helios.runtime.value_sources import NONE, SOURCES, Read, Scope, Source, eos_rows

ELEMENT_TYPES: Final[dict[DType, Any]] = {
    DType.U8: np.uint8,
    DType.I8: np.int8,
    DType.I32: np.int32,
    DType.U32: np.uint32,
    DType.I64: np.int64,
    DType.U64: np.uint64,
    DType.F32: np.float32,
}
_LANE_SCOPES: Final = (Scope.ROUND, Scope.LANE)


def check_bindings(
    graph: GraphContract,
    program: Program,
    at: Place,
    manifest: Manifest,
    contract: PreparedContract,
) -> None:
    """Every binding of a graph: a destination that the program reads, filled from a source that
    goes with it and that a lane of this operation can have."""
    placed = placed_bindings(graph, at)
    inputs = set(program.inputs)
    per_request = rows_per_request(contract, manifest.programs)
    rows = StateRows(contract.max_active, contract.snapshot_rows, per_request)
    bounds = bounds_of(program, contract, rows)
    for place, binding in placed:
        name = binding.destination
        destination = manifest.destinations.get(name)
        if destination is None:
            place.refuse("destination", f"no transport destination {name!r}")
        if name not in inputs:
            place.refuse("destination", f"{name!r} is no input of the program {program.name!r}")
        if isinstance(destination, DeltaDestination):
            check_delta(binding, place, destination, manifest, bounds)
        else:
            buffer = manifest.buffers[destination.buffer]
            resolve(binding, place, buffer, bounds)
            _check_eos_ids(binding, place, buffer, len(contract.model.frontend.eos_ids))
    check_lengths(graph, at)
    # Staging is shared by all programs: a delta that nobody fills would be applied again.
    bound = {binding.destination for _, binding in placed}
    for name in program.inputs:
        if isinstance(manifest.destinations[name], DeltaDestination) and name not in bound:
            at.refuse("bindings", f"none fills {name!r}, whose entries the program applies")


def placed_bindings(graph: GraphContract, at: Place) -> list[tuple[Place, ValueBinding]]:
    """A graph's bindings with their places; that of a pending token owned by the host is last."""
    placed = [(at.within(f"bindings[{i}]"), binding) for i, binding in enumerate(graph.bindings)]
    if graph.pending_token is not None and graph.pending_token.host_binding is not None:
        host = graph.pending_token.host_binding
        placed.append((at.within("pending_token.host_binding"), host))
    return placed


def allots_lengths(graph: GraphContract) -> bool:
    """Whether the program, not the host, decides how many tokens each lane has."""
    return any(b.source is ValueSource.SPECULATIVE_PREFIX_LIMIT for b in graph.bindings)


def check_lengths(graph: GraphContract, at: Place) -> None:
    """Where the program allots tokens to its lanes the host knows neither their rows nor how many
    they are."""
    if not allots_lengths(graph):
        return
    for place, binding in placed_bindings(graph, at):
        if binding.indexing is Indexing.PACKED_TOKEN:
            place.refuse("indexing", "the program, not the host, knows which token is whose")
        if binding.source in (ValueSource.LIVE_TOKEN_COUNT, ValueSource.QUERY_LENGTH):
            place.refuse("source", f"the program, not the host, knows the {binding.source.name}")


def resolve(
    binding: ValueBinding, at: Place, buffer: Buffer, bounds: Bounds
) -> Source | ArraySource:
    """The source of a binding to a staged buffer, with constant or offset applied. Raises
    ContractError where source, type, extent and indexing don't go together."""
    if binding.source in DELTAS and binding.source not in ARRAYS:
        at.refuse("destination", f"{binding.source.name} must be sent to a delta destination")
    if buffer.dtype not in ELEMENT_TYPES:
        at.refuse("destination", f"{buffer.dtype.name} elements can't be staged")
    columns = row_elements(buffer)
    source: Source | ArraySource
    if binding.source in ARRAYS:
        element = np.dtype(ELEMENT_TYPES[buffer.dtype])
        source = ARRAYS[binding.source](Destined(binding, at, columns, element, bounds))
        limits, optional = source.limits, True
    else:
        source = _source(binding, at, buffer, bounds)
        limits = source.limits(bounds) if source.limits is not None else None
        optional = source.optional
        if columns != source.columns:
            at.refuse(
                "destination",
                f"a row of {buffer.name!r} has {columns} elements, {binding.source.name} has"
                f" {source.columns}",
            )
    fixed = buffer.leading is LeadingCount.FIXED
    available = buffer.shape[0] if fixed else bounds.rows.request_slots
    if available < bounds.rows_needed(binding.indexing):
        at.refuse(
            "destination",
            f"{buffer.name!r} has {available} rows, {binding.indexing.name} needs"
            f" {bounds.rows_needed(binding.indexing)}",
        )
    _check_scope(source.scope, binding, at)
    if limits is not None and buffer.dtype is not DType.F32:
        _check_limits(limits, optional, binding, at, buffer.dtype)
    if binding.indexing is Indexing.SUBMISSION_ROW:
        _check_fits(binding.padding, buffer.dtype, at, "padding")
    return source


def _check_eos_ids(binding: ValueBinding, at: Place, buffer: Buffer, count: int) -> None:
    """Every request brings all of the contract's end-of-sequence ids."""
    if binding.source is ValueSource.EOS_IDS and count > row_elements(buffer):
        at.refuse(
            "destination",
            f"a row of {buffer.name!r} has {row_elements(buffer)} elements, and there are {count}"
            " end-of-sequence ids",
        )


def row_elements(buffer: Buffer) -> int:
    """Elements of one row; the leading count isn't in the shape where it is symbolic."""
    fixed = buffer.leading is LeadingCount.FIXED
    return prod(buffer.shape[1:] if fixed else buffer.shape)


def _source(binding: ValueBinding, at: Place, buffer: Buffer, bounds: Bounds) -> Source:
    dtype, name = buffer.dtype, binding.source.name
    if binding.source is ValueSource.CONSTANT:
        value = binding.constant + binding.offset
        _check_fits(value, dtype, at, "constant")
        return Source(Scope.ROUND, lambda lanes, columns: value)
    source = SOURCES[binding.source]
    if bounds.operation not in source.operations:
        refuse_operation(binding, at, bounds)
    if source.real != (dtype is DType.F32):
        kind = "real" if source.real else "integer"
        at.refuse("destination", f"{name} is {kind}, but the buffer holds {dtype.name}")
    if binding.offset and (source.real or source.columns != 1):
        at.refuse("offset", f"{name} takes no offset")
    if binding.source is ValueSource.EOS_IDS:
        columns = row_elements(buffer)
        return Source(Scope.LANE, eos_rows(columns), source.limits, columns=columns, optional=True)
    if not binding.offset:
        return source
    return Source(
        source.scope,
        _shifted(source, binding.offset),
        source.limits,
        operations=source.operations,
        optional=source.optional,
    )


def _shifted(source: Source, offset: int) -> Read:
    read = source.read
    if source.scope is Scope.ROUND:
        return lambda lanes, columns: read(lanes, columns) + offset
    if source.optional:
        return lambda lanes, columns: [
            value if value == NONE else value + offset for value in read(lanes, columns)
        ]

    def shifted(lanes: Sequence[LaneWork], columns: Columns) -> Any:
        values = read(lanes, columns)
        if isinstance(values, np.ndarray):
            return values + offset
        return [value + offset for value in values]

    return shifted


def _check_scope(scope: Scope, binding: ValueBinding, at: Place) -> None:
    """A value for each lane or token has no single place, nor a token's one for each lane."""
    allowed: tuple[Scope, ...] = tuple(Scope)
    if binding.indexing is Indexing.SCALAR:
        allowed = (Scope.ROUND,)
    elif binding.indexing is not Indexing.PACKED_TOKEN:
        allowed = _LANE_SCOPES
    if scope not in allowed:
        at.refuse(
            "indexing",
            f"{binding.source.name} has a value for each {scope.value}, which"
            f" {binding.indexing.name} can't index",
        )


def _check_limits(
    limits: tuple[int, int], optional: bool, binding: ValueBinding, at: Place, dtype: DType
) -> None:
    """A destination holds whatever the source may be; NONE isn't shifted."""
    low, high = limits
    values = {max(low, 0) + binding.offset, max(high, low) + binding.offset}
    if optional and low == NONE:
        values = {NONE, *(values if high >= 0 else ())}
    bounds = np.iinfo(ELEMENT_TYPES[dtype])
    for value in sorted(values):
        if not bounds.min <= value <= bounds.max:
            at.refuse(
                "destination",
                f"{binding.source.name} may be {value}, which {dtype.name} doesn't hold",
            )


def _check_fits(value: int, dtype: DType, at: Place, field: str) -> None:
    if dtype is DType.F32:
        return
    limits = np.iinfo(ELEMENT_TYPES[dtype])
    if not limits.min <= value <= limits.max:
        at.refuse(field, f"{value} doesn't fit {dtype.name}")
