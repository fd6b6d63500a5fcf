"""The op layer of pages: copies between a slot's page and a saved row, a launch a cache plane.

Whole pages of a history never change; these copies are of the page that is still being filled.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ignition.capture.attention_ops import PageTable
from ignition.capture.handles import BufferHandle, Rows
from ignition.capture.program import ProgramRecorder


@dataclass(frozen=True)
class SavedPlane:
    """A cache plane, and the buffer whose rows hold a page of it each."""

    plane: BufferHandle
    rows: BufferHandle


@dataclass(frozen=True)
class PagePlaces:
    """Lanes whose page is copied: request slots, endpoints and saved rows (i32 each)."""

    lanes: Rows
    slot: BufferHandle
    endpoint: BufferHandle
    row: BufferHandle


def save_page(
    program: ProgramRecorder, places: PagePlaces, table: PageTable, saved: SavedPlane
) -> None:
    """The page that holds each lane's endpoint goes to its row."""
    _copy_page("save_page", program, places, table, saved)


def load_page(
    program: ProgramRecorder, places: PagePlaces, table: PageTable, saved: SavedPlane
) -> None:
    """Each lane's row goes to the page that holds its endpoint."""
    _copy_page("load_page", program, places, table, saved)


def _copy_page(
    kernel: str, program: ProgramRecorder, places: PagePlaces, table: PageTable, saved: SavedPlane
) -> None:
    program.launch(
        kernel,
        {
            "rows": places.lanes.count,
            "slot": places.slot,
            "endpoint": places.endpoint,
            "row": places.row,
            "page_table": table.buffer,
            "plane": saved.plane,
            "saved": saved.rows,
        },
        {
            "capacity": places.lanes.capacity,
            "page_tokens": table.page_tokens,
            "table_pages": table.table_pages,
            "elements": prod(saved.plane.shape),
            "dtype": saved.plane.dtype,
        },
    )
