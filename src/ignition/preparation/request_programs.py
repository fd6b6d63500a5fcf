"""Programs without a forward pass: admission, and copies of the page that is still being filled.

A paged history's whole pages never change and need no copy; what a snapshot keeps of it is the page
that holds the endpoint. `paged_text` calls this.
"""

from __future__ import annotations

from collections.abc import Sequence

from helios.schema import contract_pb2
from ignition.capture import page_ops, sampling_ops
from ignition.capture import request_ops as ops
from ignition.capture.program import ProgramRecorder
from ignition.preparation import destinations
from ignition.preparation.text_frame import TextFrame


def initialize(frame: TextFrame, lanes: int) -> contract_pb2.GraphContract:
    """The state rows of new requests, and what their logits are processed with."""
    program, graph = frame.begin(f"initialize.b{lanes}", contract_pb2.OPERATION_INITIALIZE, lanes)
    _admit(frame, program, lanes)
    return graph


def restore(
    frame: TextFrame, saved: Sequence[page_ops.SavedPlane], lanes: int
) -> contract_pb2.GraphContract:
    """As INITIALIZE, with pages and a snapshot's page."""
    program, graph = frame.begin(f"restore.b{lanes}", contract_pb2.OPERATION_RESTORE, lanes)
    _restore(frame, program, saved, lanes)
    return graph


def resume(
    frame: TextFrame, saved: Sequence[page_ops.SavedPlane], lanes: int
) -> contract_pb2.GraphContract:
    """As RESTORE, with the token that the lane decodes from."""
    program, graph = frame.begin(f"resume.b{lanes}", contract_pb2.OPERATION_RESUME, lanes)
    _restore(frame, program, saved, lanes)
    pending = frame.inputs[destinations.PENDING_TOKEN.name]
    ops.set_pending(program, frame.lanes(lanes), pending, frame.state)
    return graph


def snapshot(
    frame: TextFrame, saved: Sequence[page_ops.SavedPlane], lanes: int
) -> contract_pb2.GraphContract:
    """The page that holds the endpoint goes to the snapshot's row."""
    program, graph = frame.begin(f"snapshot.b{lanes}", contract_pb2.OPERATION_SNAPSHOT, lanes)
    places = _places(frame, lanes, destinations.SNAPSHOT_ROW)
    for plane in saved:
        page_ops.save_page(program, places, frame.table, plane)
    return graph


def _admit(frame: TextFrame, program: ProgramRecorder, lanes: int) -> None:
    rows = frame.lanes(lanes).rows
    admission = ("slot", "generation", *(d.name for d in destinations.ADMISSION))
    ops.initialize_requests(
        program, rows, {name: frame.inputs[name] for name in admission}, frame.state
    )
    sampling = ("slot", *(d.name for d in destinations.SAMPLING))
    sampling_ops.initialize_sampling(
        program, rows, {name: frame.inputs[name] for name in sampling}, frame.sampling
    )
    frame.apply_histograms(program)


def _restore(
    frame: TextFrame, program: ProgramRecorder, saved: Sequence[page_ops.SavedPlane], lanes: int
) -> None:
    frame.apply_page_deltas(program)
    _admit(frame, program, lanes)
    places = _places(frame, lanes, destinations.RESTORE_ROW)
    for plane in saved:
        page_ops.load_page(program, places, frame.table, plane)


def _places(frame: TextFrame, lanes: int, row: destinations.Destination) -> page_ops.PagePlaces:
    return page_ops.PagePlaces(
        frame.lanes(lanes).rows,
        frame.inputs["slot"],
        frame.inputs[destinations.ENDPOINT.name],
        frame.inputs[row.name],
    )
