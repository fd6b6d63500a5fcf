"""Binds one value source to one staged buffer: the five indexings over typed views.

Everything is checked when a binding is resolved (types, extents, padding, constants), so that the
returned function only reads values and assigns slices. Called by `packing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import Indexing, ValueSource
from helios.contract.fields import refuse
from helios.contract.model import ValueBinding
from helios.runtime.device import PlannedBuffer
from helios.runtime.manifest import DType
from helios.runtime.rounds import LaneWork
from helios.runtime.value_sources import SOURCES, Columns, Read, Scope, Source, eos_rows

Fill = Callable[[Sequence[LaneWork], Columns], None]
Rows = NDArray[Any]

_ELEMENT_TYPES: dict[DType, Any] = {
    DType.U8: np.uint8,
    DType.I8: np.int8,
    DType.I32: np.int32,
    DType.U32: np.uint32,
    DType.I64: np.int64,
    DType.U64: np.uint64,
    DType.F32: np.float32,
}


def element_type(dtype: DType) -> Any:
    """The numpy type of a buffer's elements; only of types that can be staged."""
    return _ELEMENT_TYPES[dtype]


def staged_fill(
    binding: ValueBinding,
    path: str,
    staging: NDArray[np.uint8],
    planned: PlannedBuffer,
    *,
    batch_capacity: int,
    packed_capacity: int,
    request_slots: int,
) -> Fill:
    """The function that writes a round's values of `binding` into `staging`. Raises ContractError
    at the binding's `path` where source, type, extent and indexing don't go together."""
    source = _source(binding, path, planned)
    rows = _typed_rows(binding, source, path, staging, planned)
    needed = {
        Indexing.SCALAR: 1,
        Indexing.SUBMISSION_ROW: batch_capacity,
        Indexing.ACTIVE_ROW: min(batch_capacity, request_slots),
        Indexing.PHYSICAL_REQUEST_ROW: request_slots,
        Indexing.PACKED_TOKEN: packed_capacity,
    }[binding.indexing]
    if len(rows) < needed:
        refuse(
            f"{path}.destination",
            f"{planned.buffer.name!r} has {len(rows)} rows, {binding.indexing.name} needs {needed}",
        )
    return _fill(binding, source, path, rows, batch_capacity)


def _source(binding: ValueBinding, path: str, planned: PlannedBuffer) -> Source:
    """The reader, with the binding's constant or offset applied."""
    dtype, name = planned.buffer.dtype, binding.source.name
    if dtype not in _ELEMENT_TYPES:
        refuse(f"{path}.destination", f"{dtype.name} elements can't be staged")
    if binding.source is ValueSource.CONSTANT:
        value = binding.constant + binding.offset
        _check_fits(value, dtype, f"{path}.constant")
        return Source(Scope.ROUND, lambda lanes, columns: value, real=dtype is DType.F32)
    source = SOURCES.get(binding.source)
    if source is None:
        refuse(f"{path}.source", f"this Helios supplies no {name} yet")
    if source.real != (dtype is DType.F32):
        kind = "real" if source.real else "integer"
        refuse(f"{path}.destination", f"{name} is {kind}, but the buffer holds {dtype.name}")
    if binding.source is ValueSource.EOS_IDS:
        columns = prod(planned.shape[1:])
        return Source(Scope.LANE, eos_rows(columns), columns=columns, admission=True)
    if not binding.offset:
        return source
    if source.real or source.columns != 1:
        refuse(f"{path}.offset", f"{name} takes no offset")
    return Source(source.scope, _shifted(source, binding.offset))


def _shifted(source: Source, offset: int) -> Read:
    read = source.read
    if source.scope is Scope.ROUND:
        return lambda lanes, columns: read(lanes, columns) + offset
    return lambda lanes, columns: [value + offset for value in read(lanes, columns)]


def _typed_rows(
    binding: ValueBinding,
    source: Source,
    path: str,
    staging: NDArray[np.uint8],
    planned: PlannedBuffer,
) -> Rows:
    """The buffer as rows: one dimension for single elements, two for wide rows."""
    columns = prod(planned.shape[1:])
    if columns != source.columns:
        refuse(
            f"{path}.destination",
            f"a row of {planned.buffer.name!r} has {columns} elements, {binding.source.name} has"
            f" {source.columns}",
        )
    typed: Rows = staging.view(element_type(planned.buffer.dtype))
    if columns == 1 and binding.source is not ValueSource.EOS_IDS:
        return typed
    return typed.reshape(-1, columns)


def _fill(
    binding: ValueBinding, source: Source, path: str, rows: Rows, batch_capacity: int
) -> Fill:
    read, indexing = source.read, binding.indexing
    if indexing is Indexing.SCALAR:
        _check_scope(source, binding, path, Scope.ROUND)

        def fill_scalar(lanes: Sequence[LaneWork], columns: Columns) -> None:
            rows[0] = read(lanes, columns)

        return fill_scalar
    if indexing is Indexing.PACKED_TOKEN:
        return _packed_fill(source, rows)
    _check_scope(source, binding, path, Scope.ROUND, Scope.LANE)
    if indexing is Indexing.ACTIVE_ROW:

        def fill_active(lanes: Sequence[LaneWork], columns: Columns) -> None:
            rows[: len(lanes)] = read(lanes, columns)

        return fill_active
    if indexing is Indexing.PHYSICAL_REQUEST_ROW:

        def fill_physical(lanes: Sequence[LaneWork], columns: Columns) -> None:
            rows[columns.slots] = read(lanes, columns)

        return fill_physical
    padding = binding.padding
    if not source.real:
        _check_fits(padding, _dtype_of(rows), f"{path}.padding")

    def fill_submission(lanes: Sequence[LaneWork], columns: Columns) -> None:
        count = len(lanes)
        rows[:count] = read(lanes, columns)
        rows[count:batch_capacity] = padding

    return fill_submission


def _packed_fill(source: Source, rows: Rows) -> Fill:
    read = source.read
    if source.scope is Scope.LANE:

        def fill_repeated(lanes: Sequence[LaneWork], columns: Columns) -> None:
            values = np.empty((len(lanes), *rows.shape[1:]), rows.dtype)
            values[:] = read(lanes, columns)
            rows[: columns.total] = np.repeat(values, columns.lengths, axis=0)

        return fill_repeated

    def fill_tokens(lanes: Sequence[LaneWork], columns: Columns) -> None:
        rows[: columns.total] = read(lanes, columns)

    return fill_tokens


def _check_scope(source: Source, binding: ValueBinding, path: str, *allowed: Scope) -> None:
    if source.scope not in allowed:
        refuse(
            f"{path}.indexing",
            f"{binding.source.name} has a value for each {source.scope.value}, which"
            f" {binding.indexing.name} can't index",
        )


def _dtype_of(rows: Rows) -> DType:
    return next(dtype for dtype, kind in _ELEMENT_TYPES.items() if rows.dtype == kind)


def _check_fits(value: int, dtype: DType, path: str) -> None:
    if dtype is DType.F32:
        return
    limits = np.iinfo(element_type(dtype))
    if not limits.min <= value <= limits.max:
        refuse(path, f"{value} doesn't fit {dtype.name}")
