"""Writes one value source into one staged buffer: the five indexings over typed views.

`checks.bindings` has made sure that they go together, so that the returned function only reads
values and assigns slices. Called by `packing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import Indexing, ValueSource
from helios.contract.model import ValueBinding
from helios.runtime.checks.bindings import ELEMENT_TYPES, Rows, resolve
from helios.runtime.checks.places import Place
from helios.runtime.device import PlannedBuffer
from helios.runtime.manifest import DType
from helios.runtime.rounds import LaneWork
from helios.runtime.value_sources import Columns, Scope, Source

Fill = Callable[[Sequence[LaneWork], Columns], None]


def element_type(dtype: DType) -> Any:
    """The numpy type of a buffer's elements; only of types that can be staged."""
    return ELEMENT_TYPES[dtype]


def staged_fill(
    binding: ValueBinding,
    at: Place,
    staging: NDArray[np.uint8],
    planned: PlannedBuffer,
    rows: Rows,
) -> Fill:
    """The function that writes a round's values of `binding` into `staging`. Raises ContractError
    at the binding's place where source, type, extent and indexing don't go together."""
    source = resolve(binding, at, planned.buffer, rows)
    typed: NDArray[Any] = staging.view(element_type(planned.buffer.dtype))
    columns = prod(planned.shape[1:])
    if columns != 1 or binding.source is ValueSource.EOS_IDS:
        typed = typed.reshape(-1, columns)
    return _fill(binding, source, typed, rows.batch_capacity)


def _fill(binding: ValueBinding, source: Source, rows: NDArray[Any], batch_capacity: int) -> Fill:
    read, indexing = source.read, binding.indexing
    if indexing is Indexing.SCALAR:

        def fill_scalar(lanes: Sequence[LaneWork], columns: Columns) -> None:
            rows[0] = read(lanes, columns)

        return fill_scalar
    if indexing is Indexing.PACKED_TOKEN:
        return _packed_fill(source, rows)
    if indexing is Indexing.ACTIVE_ROW:

        def fill_active(lanes: Sequence[LaneWork], columns: Columns) -> None:
            rows[: len(lanes)] = read(lanes, columns)

        return fill_active
    if indexing is Indexing.PHYSICAL_REQUEST_ROW:

        def fill_physical(lanes: Sequence[LaneWork], columns: Columns) -> None:
            rows[columns.slots] = read(lanes, columns)

        return fill_physical
    padding = binding.padding

    def fill_submission(lanes: Sequence[LaneWork], columns: Columns) -> None:
        count = len(lanes)
        rows[:count] = read(lanes, columns)
        rows[count:batch_capacity] = padding

    return fill_submission


def _packed_fill(source: Source, rows: NDArray[Any]) -> Fill:
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
