"""The op layer of rows that go on where others don't: a part of a program's rows, the last rows of
the lanes that sample. Every function records one launch.
"""

from __future__ import annotations

from dataclasses import dataclass

from helios.schema import execution_pb2 as pb
from ignition.capture.handles import Activation, AttendingRows, BufferHandle, RowBinding, Rows
from ignition.capture.program import ProgramRecorder
from ignition.capture.request_ops import Lanes, PromptLanes


@dataclass(frozen=True)
class Selection:
    """The sampling lanes' last rows: how many, which lanes, and the rows (f32)."""

    rows: Rows
    lane: BufferHandle
    x: Activation


def slice_rows(program: ProgramRecorder, rows: Rows, start: int, limit: int) -> Rows:
    """The rows from `start` on, at most `limit`."""
    count = program.workspace("rows", pb.DTYPE_I32, (1,))
    program.launch(
        "slice_rows",
        {"rows": rows.count, "out": count},
        {"capacity": rows.capacity, "start": start, "limit": limit},
    )
    return Rows(count, limit)


def select_last(
    program: ProgramRecorder,
    lanes: Lanes,
    prompt: PromptLanes,
    x: Activation,
    packed_capacity: int,
) -> Selection:
    """The last packed row of each lane that samples, in lane order."""
    capacity = lanes.rows.capacity
    count = program.workspace("selected_rows", pb.DTYPE_I32, (1,))
    lane = program.workspace("selected_lane", pb.DTYPE_I32, (capacity,))
    out = program.activation("selected", capacity, x.width)
    program.launch(
        "select_last",
        {
            "rows": lanes.rows.count,
            "query_length": prompt.query_length,
            "sample": prompt.sample,
            "x": x.buffer,
            "selected_rows": count,
            "selected_lane": lane,
            "out": out.buffer,
        },
        {"capacity": capacity, "packed_capacity": packed_capacity, "width": x.width},
    )
    return Selection(Rows(count, capacity), lane, out)


def select_attending(
    program: ProgramRecorder, lanes: Lanes, prompt: PromptLanes, rows: AttendingRows
) -> tuple[Selection, AttendingRows]:
    """As `select_last`, of rows that have yet to attend: each selected one then does so by
    itself."""
    capacity, row = lanes.rows.capacity, rows.queries.shape[-1]
    count = program.workspace("selected_rows", pb.DTYPE_I32, (1,))
    lane = program.workspace("selected_lane", pb.DTYPE_I32, (capacity,))
    x = program.activation("selected", capacity, rows.x.width)
    queries = program.workspace("selected_queries", rows.queries.dtype, (capacity, row))
    positions = program.workspace("selected_positions", pb.DTYPE_I32, (capacity,))
    slot = program.workspace("selected_slot", pb.DTYPE_I32, (capacity,))
    program.launch(
        "select_attending",
        {
            "rows": lanes.rows.count,
            "query_length": prompt.query_length,
            "sample": prompt.sample,
            "x": rows.x.buffer,
            "queries": rows.queries,
            "positions": rows.at.positions,
            "slot": rows.at.slot,
            "selected_rows": count,
            "selected_lane": lane,
            "out": x.buffer,
            "out_queries": queries,
            "out_positions": positions,
            "out_slot": slot,
        },
        {
            "capacity": capacity,
            "packed_capacity": rows.at.rows.capacity,
            "width": rows.x.width,
            "elements": row,
            "dtype": rows.queries.dtype,
        },
    )
    selected = Rows(count, capacity)
    at = RowBinding(selected, positions, slot)
    return Selection(selected, lane, x), AttendingRows(at, x, queries)
